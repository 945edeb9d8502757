"""What has happened: alarms, errors of the runtime and of memory, attempts, checkpoints, the log."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from kitae.watch.facts import seconds_since_1970
from kitae.watch.table import duration, first_line
from kitae.watch.top.look import View
from kitae.watch.top.numbers import clock, gib
from kitae.watch.top.scene import Scene

_CONSOLE = Console(file=io.StringIO())
"""What rich needs in order to break lines."""
_OUTCOMES = {"running": "good", "finished": "good", "stopped": "fair", "failed": "bad", "killed": "bad"}


def alarms(scene: Scene, view: View, width: int, height: int | None = None) -> Text:
    """Those that are active, and errors that machines tell of; in whole sentences where there is room."""
    lines = [*_alarms(scene, view), *errors(scene, view)]
    if not lines:
        return Text("none", view.palette.dim)
    whole = [part for line in lines for part in line.wrap(_CONSOLE, max(1, width))]
    for part in whole:
        part.rstrip()
    return _cut(lines if height is not None and len(whole) > height else whole, width, height)


def _alarms(scene: Scene, view: View) -> Iterator[Text]:
    for one in sorted(scene.alarms, key=lambda alarm: (alarm.level != "critical", alarm.since)):
        style = view.palette.bad if one.level == "critical" else view.palette.fair
        where = f" on {one.node}" if one.node else ""
        since = duration(max(0.0, scene.now - one.since))
        yield Text.assemble(
            (f"{one.name}{where}", style), f": {one.what}", (f" (for {since})", view.palette.dim)
        )


def errors(scene: Scene, view: View) -> Iterator[Text]:
    """Of runtimes and of memories, by node; what could not be sampled as well."""
    for node in scene.nodes:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in node.sample.errors.items() if count)
        if kinds:
            yield Text(f"{node.name}: runtime errors: {kinds}", view.palette.bad)
        for device in node.sample.devices:
            for name, count, style in (
                ("uncorrected", device.ecc_uncorrected, view.palette.bad),
                ("corrected", device.ecc_corrected, view.palette.fair),
            ):
                if count:
                    yield Text(f"{node.name}, device {device.index}: {count:,} {name} ECC errors", style)
        for note in node.sample.notes:
            yield Text(f"{node.name}: {note}", view.palette.dim)


def attempts(scene: Scene, view: View, width: int, height: int | None = None) -> Text:
    """When each began, how long it took, how it ended and why; the newest first."""
    found = [] if scene.status is None else list(enumerate(scene.status.facts.attempts, 1))
    if not found:
        return Text("none has begun", view.palette.dim)
    return _cut([_attempt(number, one, scene, view) for number, one in reversed(found)], width, height)


def _attempt(number: int, one: object, scene: Scene, view: View) -> Text:
    assert isinstance(one, dict)
    begun = seconds_since_1970(str(one.get("started")))
    ended = seconds_since_1970(str(one["ended"])) if one.get("ended") else None
    outcome = str(one.get("outcome", "?"))
    style = getattr(view.palette, _OUTCOMES.get(outcome, "fair"))
    nodes = one.get("nodes")
    where = f", {len(nodes)} nodes" if nodes and len(nodes) > 1 else ""
    took = "" if ended is None else f" after {duration(max(0.0, ended - begun))}"
    why = f": {first_line(str(one['why']))}" if one.get("why") else ""
    return Text.assemble(
        f"{number}  ",
        (f"{clock(begun, scene.now)}{where}  ", view.palette.dim),
        (outcome, style),
        f"{took}{why}",
    )


def checkpoints(scene: Scene, view: View, width: int, height: int | None = None) -> Text:
    """Those that are there, the newest first."""
    if not scene.checkpoints:
        return Text("none is saved", view.palette.dim)
    lines = [
        Text.assemble(
            f"step {one.step:,}",
            (
                f"  {gib(one.size_bytes)} GiB"
                if one.size_bytes > 1 << 28
                else f"  {one.size_bytes / 1e6:.1f} MB"
            ),
            (f"  {clock(one.time, scene.now)}", view.palette.dim),
            "" if one.seconds is None else f"  waited {one.seconds:.1f} s",
        )
        for one in reversed(scene.checkpoints)
    ]
    return _cut(lines, width, height)


def log_tail(scene: Scene, view: View, width: int, height: int) -> Text:
    """The last lines of the rank that is looked at."""
    if not scene.log:
        return Text(f"rank {scene.rank} has written nothing yet", view.palette.dim)
    return _cut([Text(line) for line in scene.log[-height:]], width, height)


def _cut(lines: list[Text], width: int, height: int | None) -> Text:
    shown = lines if height is None else lines[:height]
    for line in shown:
        line.truncate(width)
    return Text("\n", end="").join(shown)
