"""The curves of a training."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from kitae.watch.table import duration
from kitae.watch.top.chart import Series, chart
from kitae.watch.top.look import Axis, View
from kitae.watch.top.numbers import compact
from kitae.watch.top.scene import Scene

TITLES = {
    "loss": "loss",
    "learning_rate": "learning rate",
    "grad_norm": "gradient norm",
    "tokens_per_s": "tokens/s",
    "step_seconds": "seconds a step",
}
_UNITS: dict[Axis, str] = {"steps": "steps", "tokens": "tokens", "time": ""}


def curve(name: str, scene: Scene, view: View, width: int, height: int) -> Text:
    """One of `CURVES`; the loss with its held-out points, on a logarithmic scale where that is wanted."""
    return chart(
        series_of(name, scene, view),
        width,
        height,
        log=view.log_scale and name == "loss",
        unit=_UNITS[view.axis],
        glyphs=view.glyphs,
        dim=view.palette.dim,
        label=_label(scene, view),
    )


def series_of(name: str, scene: Scene, view: View) -> list[Series]:
    """What is drawn for a curve."""
    training, colours = scene.training, view.palette
    found = training.curves.get(name)
    series = [] if found is None else [Series(found.xs[view.axis], found.ys, colours.curve)]
    if name == "loss" and training.heldout_curve is not None:
        heldout = training.heldout_curve
        series.append(Series(heldout.xs[view.axis], heldout.ys, colours.other_curve, points=True))
    return series


def _label(scene: Scene, view: View) -> Callable[[float], str]:
    """How the x axis is labelled; times are told from the first one on."""
    if view.axis != "time":
        return compact
    found = scene.training.curves.get("loss")
    times = [] if found is None else [at for at in found.xs["time"] if at == at]
    first = min(times, default=0.0)
    return lambda at: duration(at - first)


def title_of(name: str, scene: Scene, view: View) -> str:
    """The name of a curve with its newest value."""
    latest = scene.training.latest.get(name)
    scale = " (log)" if view.log_scale and name == "loss" else ""
    heldout = scene.training.heldout if name == "loss" else None
    held = "" if heldout is None else f", {view.glyphs.point} held-out {heldout:.4g}"
    return f"{TITLES[name]}{scale} {compact(latest)}{held}"
