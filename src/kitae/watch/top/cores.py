"""Cores and memory of each node: bars, or a map of cells where there are many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from kitae.watch.samples import CoreSample, Sample
from kitae.watch.table import duration
from kitae.watch.top.core_map import core_map, levels, memory_of, old_s
from kitae.watch.top.header import bar, packed
from kitae.watch.top.look import View
from kitae.watch.top.numbers import NONE, compact, gib, of_gib, percent, share
from kitae.watch.top.scene import Node, Scene

_CELL, _LEAST = 28, 20
"""Signs of a core with its bar: usual, and in the narrowest of pictures."""


def cores(scene: Scene, view: View, width: int, height: int | None = None) -> Text:
    """Bars where there is room for all of them, otherwise a map; with a `height`, of so many lines."""
    chosen = chosen_nodes(scene, view)
    if not chosen:
        return Text("no core has been sampled yet", view.palette.dim)
    needed = sum(1 + -(-len(node.sample.cores) // _columns(node, width)) for node in chosen)
    if needed <= height if height is not None else len(chosen) == 1:
        lines = [line for node in chosen for line in _detailed(node, scene, view, width)]
    else:
        lines = list(core_map(chosen, scene, view, width, height))
    for line in lines:
        line.truncate(width)
    return Text("\n", end="").join(lines[:height])


def title_of_cores(scene: Scene, view: View) -> str:
    """Of all nodes together: cores, how busy, memory; or which node it is."""
    if view.node and view.node <= len(scene.nodes):
        return f"cores of {scene.nodes[view.node - 1].name} ({view.node} of {len(scene.nodes)} nodes)"
    if not scene.nodes:
        return "cores"
    on = f" on {len(scene.nodes)} nodes" if len(scene.nodes) > 1 else ""
    pieces = [
        f"{scene.cores} core{'' if scene.cores == 1 else 's'}{on}",
        f"{percent(scene.utilisation)} busy",
    ]
    memory = memory_of([core for node in scene.nodes for core in node.sample.cores])
    return view.glyphs.separator.join([*pieces, *([memory] if memory else [])])


def chosen_nodes(scene: Scene, view: View) -> Sequence[Node]:
    """All, or the one that was turned to."""
    return scene.nodes[view.node - 1 : view.node] if view.node else scene.nodes


# ---- bars


def _detailed(node: Node, scene: Scene, view: View, width: int) -> Iterator[Text]:
    yield from _title(node, scene, view, width)
    columns = _columns(node, width)
    cells = [_cell(core, view, max(_LEAST, (width + 1) // columns - 1)) for core in node.sample.cores]
    rows = -(-len(cells) // columns)
    for row in range(rows):
        line = Text(" ", end="").join(cells[row::rows])
        line.truncate(width)
        yield line


def _columns(node: Node, width: int) -> int:
    """Cores beside each other."""
    return min(max(1, (width + 1) // (_CELL + 1)), len(node.sample.cores)) or 1


def _cell(core: CoreSample, view: View, width: int) -> Text:
    """A core: number, bar, how busy, memory."""
    memory = "" if core.memory_used_bytes is None else f" {gib(core.memory_used_bytes):>5}G"
    busy = compact(core.flops_per_s) if view.flops else percent(core.utilisation)
    busy = f" {busy:>5}"
    number = f"{core.index:>3} "
    style = view.palette.of_share(core.utilisation)
    long = max(3, width - len(number) - len(busy) - len(memory))
    filling = share(core.memory_used_bytes, core.memory_total_bytes)
    return Text.assemble(
        (number, view.palette.dim),
        bar(core.utilisation, long, view, style),
        busy,
        (memory, view.palette.of_filling(filling) if filling is not None else view.palette.dim),
    )


def _title(node: Node, scene: Scene, view: View, width: int) -> Iterator[Text]:
    """The node and its host: the pieces for which there is room."""
    host, colours = node.sample.host, view.palette
    pieces = [Text(node.name, colours.strong), Text(node.sample.source, colours.dim)]
    pieces += _age(node.sample, scene, view)
    pieces += [
        Text(f"{name} {text}", colours.of_filling(filling) if filling is not None else "")
        for name, text, filling in (
            ("cpu", percent(host.cpu_utilisation), None),
            ("memory", of_gib(host.memory_used_bytes, host.memory_total_bytes),
             share(host.memory_used_bytes, host.memory_total_bytes)),
            ("disk free", f"{gib(host.disk_free_bytes)} GiB", _full(node.sample)),
        )
        if NONE not in text.split()
    ]  # fmt: skip
    if node.past:
        pieces.append(Text.assemble("past ", (levels(node.past[-20:], view), colours.curve)))
    yield next(packed(pieces, view, width))


def _full(sample: Sample) -> float | None:
    free = share(sample.host.disk_free_bytes, sample.host.disk_total_bytes)
    return None if free is None else 1 - free


def _age(sample: Sample, scene: Scene, view: View) -> list[Text]:
    """How old a sample is, where that is not as it should be."""
    if scene.status is not None and not scene.status.active:
        return [Text("at the end", view.palette.dim)]
    age = old_s(sample, scene)
    return [] if age is None else [Text(f"{duration(age)} old", view.palette.bad)]


# ---- what else a node has


def processes(scene: Scene, view: View, width: int) -> Text:
    """Processes of the chosen nodes, those that use most first."""
    rows = [(node.name, one) for node in chosen_nodes(scene, view) for one in node.sample.processes]
    rows.sort(key=lambda row: -(row[1].cpu_utilisation or 0.0))
    if not rows:
        return Text("no process is told of", view.palette.dim)
    lines = [Text(f"{'pid':>8}  {'cpu':>6}  {'GiB':>6}  {'cores':<12}  process", view.palette.dim)]
    for name, one in rows:
        where = f"{name}: " if len(scene.nodes) > 1 else ""
        lines.append(
            Text(
                f"{one.pid:>8}  {percent(one.cpu_utilisation):>6}  {gib(one.memory_used_bytes):>6}  "
                f"{ranges(one.cores):<12}  {where}{one.tag}"
            )
        )
    for line in lines:
        line.truncate(width)
    return Text("\n", end="").join(lines)


def ranges(numbers: Sequence[int]) -> str:
    """Write 0-3,8."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in found) or NONE
