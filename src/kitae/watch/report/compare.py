"""Several runs beside each other: results, recipes, curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kitae.watch.report.blocks import Block, Table, Words
from kitae.watch.report.figures import NONE, amount, loss, number, percent, seconds, usd
from kitae.watch.report.paired import difference
from kitae.watch.report.run_view import RunView
from kitae.watch.report.verdict import CLEAR, is_proven, model_name

_COLUMNS: tuple[tuple[str, Callable[[RunView], str]], ...] = (
    ("state", lambda view: view.status.state),
    ("model", model_name),
    ("steps", lambda view: number(view.status.progress.step)),
    (
        "tokens",
        lambda view: amount(view.results.get("real_tokens") or view.readings.train.last("total_real_tokens")),
    ),
    ("held-out before", lambda view: loss(view.heldout.get("loss_before"))),
    ("after", lambda view: loss(view.heldout.get("loss_after"))),
    ("change", lambda view: _change(view)),
    (
        "accuracy after",
        lambda view: percent(view.heldout.get("accuracy_after", view.heldout.get("masked_accuracy_after"))),
    ),
    ("training loss", lambda view: loss(view.readings.train.last("loss"))),
    (
        "tokens/s",
        lambda view: number(view.results.get("real_tokens_per_s") or view.status.progress.tokens_per_s),
    ),
    ("time", lambda view: seconds(view.machine_seconds)),
    ("cost", lambda view: usd(view.status.cost_usd)),
    ("attempts", lambda view: number(len(view.attempts))),
    ("proof", lambda view: "passed" if is_proven(view) else "none"),
)


def results(views: Sequence[RunView]) -> Iterator[Block]:
    """A row for each run; what none has is left out."""
    cells = {head: [show(view) for view in views] for head, show in _COLUMNS}
    kept = [head for head, column in cells.items() if any(cell != NONE for cell in column)]
    rows = tuple((view.name, *(cells[head][place] for head in kept)) for place, view in enumerate(views))
    words = frozenset(
        place for place, head in enumerate(("run", *kept)) if head in ("run", "state", "model", "proof")
    )
    yield Table("results", ("run", *kept), rows, words)
    keys = {view.results.get("data_key") for view in views if view.results}
    if len(keys) > 1:
        yield Words(
            "The runs were trained, and judged, on different data: their losses say little about each other.",
            "warn",
        )


def _change(view: RunView) -> str:
    heldout = view.heldout
    if "mean_drop" not in heldout:
        return NONE
    error = heldout.get("standard_error")
    return f"{-heldout['mean_drop']:+.4f}" + ("" if error is None else f" ± {error:.4f}")


def sentence(views: Sequence[RunView]) -> str:
    """Which run came out lowest, where all were judged by the same text, and whether that is clear."""
    judged = [view for view in views if view.heldout.get("loss_after") is not None]
    same = len({view.results.get("data_key") for view in judged}) == 1
    if len(judged) < 2 or not same:
        return f"{len(views)} runs beside each other; no common held-out text tells which is best."
    best, second, *_ = sorted(judged, key=lambda view: float(view.heldout["loss_after"]))
    apart = second.heldout["loss_after"] - best.heldout["loss_after"]
    return (
        f"Of {len(views)} runs, {best.name} has the lowest held-out loss, {loss(best.heldout['loss_after'])} "
        f"{best.unit}: {_clear(best, second, apart)}."
    )


def _clear(best: RunView, second: RunView, apart: float) -> str:
    """How far the second is, with the error over rows where both were judged row by row."""
    paired = difference(best, second)
    error = None if paired is None else paired[1]
    if paired is None or error is None:
        return f"{apart:.4f} below {second.name}"
    clear = "" if abs(paired[0]) > CLEAR * error else ", which is not clear"
    return f"{paired[0]:.4f} ± {error:.4f} below {second.name}, row by row{clear}"
