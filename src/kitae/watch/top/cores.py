"""Cores and memory of each node: bars, or a map of cells where there are many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.text import Text

from kitae.watch.samples import CoreSample, Sample
from kitae.watch.table import duration
from kitae.watch.top.header import bar
from kitae.watch.top.look import View
from kitae.watch.top.numbers import NONE, compact, gib, of_gib, percent, share
from kitae.watch.top.scene import Node, Scene

_CELL, _LEAST = 28, 20
"""Signs of a core with its bar: usual, and in the narrowest of pictures."""
_WITH_MEMORY = 8
"""Nodes up to which each has a line for the memory of its cores, on a page of their own."""
STALE_PERIODS = 4
"""A sample that is older than so many periods is called old."""


def cores(scene: Scene, view: View, width: int, height: int | None = None) -> Text:
    """Bars where there is room for all of them, otherwise a map; with a `height`, of so many lines."""
    chosen = chosen_nodes(scene, view)
    if not chosen:
        return Text("no core has been sampled yet", view.palette.dim)
    needed = sum(1 + -(-len(node.sample.cores) // _columns(node, width)) for node in chosen)
    if needed <= height if height is not None else len(chosen) == 1:
        lines = [line for node in chosen for line in _detailed(node, scene, view, width)]
    else:
        lines = list(_map(chosen, scene, view, width, height))
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
    memory = _memory_of([core for node in scene.nodes for core in node.sample.cores])
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
    """The node, and its host."""
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
    line = Text(view.glyphs.separator, end="").join(pieces)
    line.truncate(width)
    yield line


def _full(sample: Sample) -> float | None:
    free = share(sample.host.disk_free_bytes, sample.host.disk_total_bytes)
    return None if free is None else 1 - free


def _age(sample: Sample, scene: Scene, view: View) -> list[Text]:
    """How old a sample is, where that is not as it should be."""
    age = scene.now - sample.time
    if scene.status is not None and not scene.status.active:
        return [Text("at the end", view.palette.dim)]
    if age <= STALE_PERIODS * max(sample.period_s, 1.0):
        return []
    return [Text(f"{duration(age)} old", view.palette.bad)]


def levels(values: Sequence[float], view: View) -> str:
    """A sign for each share."""
    return "".join(level(value, view) for value in values)


def level(value: float | None, view: View) -> str:
    """A sign for a share: unknown, idle, or one of eight."""
    if value is None:
        return "?"
    return view.glyphs.levels[max(1, min(8, round(8 * value)))] if value >= 0.01 else view.glyphs.dot


# ---- a map


def _map(nodes: Sequence[Node], scene: Scene, view: View, width: int, height: int | None) -> Iterator[Text]:
    """A line a node where its cores fit into it, with their devices apart where that fits too."""
    name = min(max(len(node.name) for node in nodes), max(6, width // 4))
    rows = [
        row
        for node in nodes
        for row in _mapped(node, scene, view, width, name, height is None and len(nodes) <= _WITH_MEMORY)
    ]
    if height is None or len(rows) <= height:
        yield from rows
        return
    yield from rows[: height - 1]
    left = len(rows) - height + 1
    yield Text(f"and {left} lines more: n turns to one node after the other", view.palette.dim)


def _mapped(node: Node, scene: Scene, view: View, width: int, name: int, memory_too: bool) -> Iterator[Text]:
    cells, colours = node.sample.cores, view.palette
    summary = f" {percent(node.utilisation):>5}"
    memory = _memory_of(cells)
    apart = len(cells) + len(cells) // node.cores_per_device - 1
    if width >= name + apart + 23:
        summary += f" {memory:>14}"
    room = max(4, width - name - 1 - len(summary))
    groups = _grouped(cells, node.cores_per_device, room)
    for number, group in enumerate(groups):
        line = Text(f"{node.name[-name:]:<{name}} " if number == 0 else " " * (name + 1))
        line.stylize(colours.dim if not _age(node.sample, scene, view) else colours.bad)
        line.append_text(_cells(group, view))
        if number == 0:
            line.append(" " * max(0, min(room, _longest(groups)) - _length(group)))
            line.append(summary)
        yield line
        if memory_too and memory:
            yield Text.assemble((f"{'memory':>{name}} ", colours.dim), _cells(group, view, _memory_cell))


Group = Sequence[Sequence[CoreSample]]
"""Cores of a line, by device; one device where there is no room between them."""


def _grouped(cells: Sequence[CoreSample], size: int, room: int) -> list[Group]:
    """Lines of cores, with devices apart where each still has its place in the same line or a whole one."""
    devices = [cells[at : at + size] for at in range(0, len(cells), size)]
    if len(cells) + len(devices) - 1 <= room:
        return [devices]
    if len(cells) <= room:
        return [[cells]]
    return [[cells[at : at + room]] for at in range(0, len(cells), room)]


def _length(group: Group) -> int:
    return sum(map(len, group)) + len(group) - 1


def _longest(groups: Sequence[Group]) -> int:
    return max(map(_length, groups), default=0)


def _busy_cell(core: CoreSample, view: View) -> tuple[str, str]:
    return level(core.utilisation, view), view.palette.of_share(core.utilisation)


def _memory_cell(core: CoreSample, view: View) -> tuple[str, str]:
    filling = share(core.memory_used_bytes, core.memory_total_bytes)
    return level(filling, view), view.palette.of_filling(filling)


def _cells(
    group: Group, view: View, cell: Callable[[CoreSample, View], tuple[str, str]] = _busy_cell
) -> Text:
    """Neighbours of one colour are one piece: a line of many is drawn quickly."""
    pieces: list[tuple[str, str]] = []
    for number, device in enumerate(group):
        if number:
            pieces.append((" ", ""))
        for core in device:
            sign, style = cell(core, view)
            if pieces and pieces[-1][1] == style:
                pieces[-1] = (pieces[-1][0] + sign, style)
            else:
                pieces.append((sign, style))
    return Text.assemble(*pieces)


def _memory_of(cells: Sequence[CoreSample]) -> str:
    used = [one.memory_used_bytes for one in cells if one.memory_used_bytes is not None]
    total = [one.memory_total_bytes for one in cells if one.memory_total_bytes is not None]
    if not used:
        return ""
    return of_gib(sum(used), sum(total) if len(total) == len(used) else None)


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
