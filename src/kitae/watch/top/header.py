"""The lines above everything: which run, how far, how fast, how much money."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from kitae.watch.state import State
from kitae.watch.table import duration, first_line
from kitae.watch.top.look import Palette, View
from kitae.watch.top.numbers import NONE, clock, compact, percent, seconds, usd
from kitae.watch.top.scene import Scene

_BAR, _SHORT_BAR, _USUAL = 24, 10, 100
"""Signs of the bar, and of that on screens that are narrower than usual."""
_STATES: dict[State, str] = {
    "running": "good",
    "silent": "fair",
    "waiting": "fair",
    "done": "good",
    "stopped": "fair",
    "failed": "bad",
    "died": "bad",
}
"""The colour of a state, by its name in the palette."""


def header(scene: Scene, view: View, width: int) -> Text:
    """As many lines as it takes, each of whole pieces."""
    usual = width >= _USUAL
    who, far = [*_who(scene, view)], [*_how_far(scene, view, _BAR if usual else _SHORT_BAR)]
    rest = [*_how_fast(scene, view), *_how_much(scene, view)]
    groups = [[*who, _now(scene, view)], far, rest] if usual else [[*who, *far, *rest, _now(scene, view)]]
    lines = [line for group in groups for line in packed(group, view, width)]
    notes = [*scene.notes, *([_reading(scene)] if scene.read_share < 1 else [])]
    lines += [Text(note, view.palette.fair) for note in notes]
    for line in lines:
        line.truncate(width)
    return Text("\n", end="").join(lines)


def _reading(scene: Scene) -> str:
    return f"metrics.jsonl is long: {percent(scene.read_share)} of it has been read, and curves end there"


def packed(pieces: Sequence[Text], view: View, width: int) -> Iterator[Text]:
    """Pieces in lines that are not too long; a piece is not broken."""
    separator = Text(view.glyphs.separator, view.palette.dim)
    line = Text()
    for piece in pieces:
        if line and line.cell_len + separator.cell_len + piece.cell_len > width:
            yield line
            line = Text()
        line = Text.assemble(line, separator, piece) if line else piece.copy()
    if line:
        yield line


def _who(scene: Scene, view: View) -> Iterator[Text]:
    colours = view.palette
    yield Text(scene.title, colours.strong)
    if scene.gone:
        yield Text("its folder is gone; this is what was seen last", colours.bad)
    if scene.status is not None:
        yield from _state(scene, colours)
    if view.paused:
        yield Text("paused", colours.fair)


def _now(scene: Scene, view: View) -> Text:
    own = "" if view.own_share is None else f" (top takes {percent(view.own_share)} of a core)"
    return Text(f"{clock(scene.now, scene.now)}{own}", view.palette.dim)


def _state(scene: Scene, colours: Palette) -> Iterator[Text]:
    status = scene.status
    assert status is not None
    yield Text(status.state, getattr(colours, _STATES[status.state]))
    if status.why and (status.state != "running" or status.job is not None):
        yield Text(first_line(status.why), colours.dim)
    if len(status.facts.attempts) > 1:
        yield Text(f"attempt {len(status.facts.attempts)}", colours.dim)
    if status.active and status.sign_age_s is not None:
        yield Text(f"last sign {duration(status.sign_age_s)} ago", colours.dim)


def _how_far(scene: Scene, view: View, long: int) -> Iterator[Text]:
    if scene.status is None:
        return
    progress, training = scene.status.progress, scene.training
    step, steps = progress.step, progress.steps
    if step is None:
        yield Text("no update yet" if scene.status.active else "no update was made", view.palette.dim)
        return
    yield Text.assemble("step ", (f"{step:,}", view.palette.strong), f"/{f'{steps:,}' if steps else '?'}")
    if steps:
        yield Text.assemble(bar(step / steps, long, view, view.palette.good), f" {percent(step / steps, 1)}")
    if training.phase is not None:
        yield Text(f"phase {training.phase}")
    yield from _time(scene)
    yield Text.assemble("loss ", (_loss(progress.loss), view.palette.strong))
    if training.heldout is not None:
        yield Text.assemble("held-out ", (_loss(training.heldout), view.palette.strong))


def _time(scene: Scene) -> Iterator[Text]:
    left, ends = scene.outlook.seconds_left, scene.outlook.ends_at
    if left is not None:
        yield Text(f"{duration(left)} left, ends {clock(ends, scene.now)}")


def _loss(value: float | None) -> str:
    return NONE if value is None else f"{value:.4f}"


def _how_fast(scene: Scene, view: View) -> Iterator[Text]:
    speed, start = scene.training.speed, scene.training.start
    if speed.tokens_per_s is not None:
        real = "" if speed.real_tokens_per_s is None else f" ({compact(speed.real_tokens_per_s)} real)"
        yield Text.assemble((compact(speed.tokens_per_s), view.palette.strong), f" tokens/s{real}")
    if speed.tokens_per_s_per_device is not None:
        yield Text(f"{compact(speed.tokens_per_s_per_device)} a core")
    if speed.utilisation is not None:
        yield Text(f"utilisation {percent(speed.utilisation, 1)}")
    if speed.step_seconds is not None:
        yield Text(f"{seconds(speed.step_seconds)}/step")
    if start.get("devices"):
        yield Text(f"{start['devices']} x {start.get('backend', '?')}, {start.get('precision', '?')}")


def _how_much(scene: Scene, view: View) -> Iterator[Text]:
    outlook = scene.outlook
    if scene.status is None:
        return
    if outlook.cost_usd is None:
        yield Text("cost unknown: target.price_per_node_hour is not set", view.palette.dim)
        return
    so_far = "so far" if scene.status.active else "in all"
    yield Text.assemble((usd(outlook.cost_usd), view.palette.strong), f" {so_far}")
    if outlook.cost_end_usd is not None and scene.status.active:
        yield Text(f"{usd(outlook.cost_end_usd)} at the end")
    if outlook.price_per_hour is not None:
        yield Text(f"{usd(outlook.price_per_hour)}/h")
    left = outlook.budget_left_usd
    if left is not None:
        style = view.palette.bad if left < 0.2 * (outlook.budget_usd or 0.0) else ""
        yield Text(f"{usd(left)} left of {usd(outlook.budget_usd)}", style)


def bar(share: float | None, width: int, view: View, style: str) -> Text:
    """A bar of that many signs."""
    filled = round(max(0.0, min(1.0, share or 0.0)) * width)
    return Text.assemble(
        (view.glyphs.full * filled, style), (view.glyphs.empty * (width - filled), view.palette.track)
    )
