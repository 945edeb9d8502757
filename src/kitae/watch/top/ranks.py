"""How long each rank computes in a step, and which ones the others wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from kitae.watch.top.header import bar
from kitae.watch.top.look import View
from kitae.watch.top.numbers import seconds
from kitae.watch.top.scene import Ranks, Scene

_LONGER = 1.1
"""Times of the median from which a rank is noticed. Which ones are slow the training says (`train.pace`)."""


def ranks(scene: Scene, view: View, width: int, height: int | None = None) -> Text:
    """A bar a rank where there is room; otherwise a map, and the slowest ones."""
    found = scene.training.ranks
    if found is None or not found.seconds:
        return _alone(scene, view)
    lines = [_summary(found, view)]
    if height is None or len(found.seconds) < height:
        lines += [_bar(rank, found, view, width) for rank in range(len(found.seconds))]
    else:
        shown = _slowest(found, max(0, min(5, height - 2 - _rows(found, width))))
        lines += [_bar(rank, found, view, width) for rank in shown]
        lines += list(_map(found, view, width))
    for line in lines:
        line.truncate(width)
    return Text("\n", end="").join(lines[:height])


def _alone(scene: Scene, view: View) -> Text:
    step_s = scene.training.speed.step_seconds
    if step_s is None:
        return Text("no update yet", view.palette.dim)
    several = int(scene.training.start.get("devices") or 1) > 1
    told = "ranks tell each other every 10 steps" if several else "there is one process"
    return Text(f"{seconds(step_s)}/step; {told}", view.palette.dim)


def _summary(found: Ranks, view: View) -> Text:
    """What is wrong comes first, as the place may be narrow."""
    slow = ", ".join(f"rank {rank} {ratio:.2f} x" for rank, ratio in found.slow.items())
    middle, longest = seconds(found.median_s), seconds(max(found.seconds))
    text = f"{len(found.seconds)} ranks, median {middle}, most {longest}"
    return Text.assemble(
        (f"slow: {slow}; " if slow else "", view.palette.bad),
        text,
        (f" (step {found.step:,})", view.palette.dim),
    )


def _bar(rank: int, found: Ranks, view: View, width: int) -> Text:
    own, style = found.seconds[rank], _style(rank, found, view)
    node = found.nodes[rank] if rank < len(found.nodes) else ""
    mark = f" {view.glyphs.marker} slow, {found.slow[rank]:.2f} x" if rank in found.slow else ""
    head, tail = f"{rank:>4} {node:<{_widest(found)}} ", f" {seconds(own):>9}"
    long = max(4, width - len(head) - len(tail) - (17 if found.slow else 0))
    longest = max(found.seconds) or 1.0
    return Text.assemble(
        (head, view.palette.dim), bar(own / longest, long, view, style), tail, (mark, view.palette.bad)
    )


def _widest(found: Ranks) -> int:
    return min(16, max(map(len, found.nodes), default=0))


def _style(rank: int, found: Ranks, view: View) -> str:
    ratio = found.seconds[rank] / found.median_s if found.median_s else 1.0
    if rank in found.slow:
        return view.palette.bad
    return view.palette.fair if ratio > _LONGER else view.palette.good


def _slowest(found: Ranks, count: int) -> Sequence[int]:
    order = sorted(range(len(found.seconds)), key=lambda rank: -found.seconds[rank])
    return order[:count]


def _rows(found: Ranks, width: int) -> int:
    return -(-len(found.seconds) // max(1, width - 5))


def _map(found: Ranks, view: View, width: int) -> Iterator[Text]:
    """A sign a rank: how long it takes by the longest."""
    longest = max(found.seconds) or 1.0
    room = max(1, width - 5)
    for first in range(0, len(found.seconds), room):
        line = Text(f"{first:>4} ", view.palette.dim)
        for rank in range(first, min(first + room, len(found.seconds))):
            sign = view.glyphs.levels[max(1, round(8 * found.seconds[rank] / longest))]
            line.append(sign, _style(rank, found, view))
        yield line
