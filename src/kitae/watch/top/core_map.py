"""Many cores in few lines: a sign a core, by node and device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.text import Text

from kitae.watch.samples import CoreSample, Sample
from kitae.watch.top.look import View
from kitae.watch.top.numbers import of_gib, percent, share
from kitae.watch.top.scene import Node, Scene

_WITH_MEMORY = 8
"""Nodes up to which each has a line for the memory of its cores, on a page of their own."""
STALE_PERIODS = 4
"""A sample that is older than so many periods is called old."""


def core_map(
    nodes: Sequence[Node], scene: Scene, view: View, width: int, height: int | None
) -> Iterator[Text]:
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
    memory = memory_of(cells)
    apart = len(cells) + len(cells) // node.cores_per_device - 1
    if width >= name + apart + 23:
        summary += f" {memory:>14}"
    room = max(4, width - name - 1 - len(summary))
    groups = _grouped(cells, node.cores_per_device, room)
    for number, group in enumerate(groups):
        line = Text(f"{node.name[-name:]:<{name}} " if number == 0 else " " * (name + 1))
        line.stylize(colours.dim if old_s(node.sample, scene) is None else colours.bad)
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


def memory_of(cells: Sequence[CoreSample]) -> str:
    """Of all together, as GiB; empty where none tells its own."""
    used = [one.memory_used_bytes for one in cells if one.memory_used_bytes is not None]
    total = [one.memory_total_bytes for one in cells if one.memory_total_bytes is not None]
    if not used:
        return ""
    return of_gib(sum(used), sum(total) if len(total) == len(used) else None)


def old_s(sample: Sample, scene: Scene) -> float | None:
    """How old a sample is, in seconds, where it is older than it should be; None of a run that has ended."""
    if scene.status is not None and not scene.status.active:
        return None
    age = scene.now - sample.time
    return age if age > STALE_PERIODS * max(sample.period_s, 1.0) else None


def levels(values: Sequence[float], view: View) -> str:
    """A sign for each share."""
    return "".join(level(value, view) for value in values)


def level(value: float | None, view: View) -> str:
    """A sign for a share: unknown, idle, or one of eight."""
    if value is None:
        return "?"
    return view.glyphs.levels[max(1, min(8, round(8 * value)))] if value >= 0.01 else view.glyphs.dot
