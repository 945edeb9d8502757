"""What the training did: held-out numbers before and after, classes, phases, samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kitae.watch.reading import thinned
from kitae.watch.report.blocks import Block, Fold, Listing, Table, Words
from kitae.watch.report.figures import loss, number, percent
from kitae.watch.report.run_view import RunView

_METRICS: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "loss": ("loss", loss),
    "perplexity": ("perplexity", number),
    "accuracy": ("accuracy", percent),
    "f1_macro": ("F1, mean of the classes", loss),
    "masked_accuracy": ("accuracy of masked tokens", percent),
    "next_sentence_loss": ("loss of pairs", loss),
    "next_sentence_accuracy": ("accuracy of pairs", percent),
}
"""Numbers of an evaluation, in words."""
_ROWS = 40
"""Of evaluations that are listed."""


def result(view: RunView) -> Iterator[Block]:
    """Held-out numbers."""
    phases, names = view.results.get("phases"), _class_names(view)
    if isinstance(phases, list) and phases:
        for phase in phases:
            of = f"held-out text of phase {phase.get('name')}"
            yield from _heldout(phase.get("heldout") or {}, view.unit, of, names)
    else:
        at = view.heldout.get("at_step")
        of = "held-out text" if at is None else f"held-out text, by step {at:,}"
        yield from _heldout(view.heldout, view.unit, of, names)
    yield from _evaluations(view)


def _heldout(heldout: Mapping[str, Any], unit: str, caption: str, names: Sequence[str]) -> Iterator[Block]:
    rows = [
        (words, show(heldout[f"{name}_before"]), show(heldout[f"{name}_after"]))
        for name, (words, show) in _METRICS.items()
        if f"{name}_before" in heldout and f"{name}_after" in heldout
    ]
    if not rows:
        return
    yield Table(caption, ("", "before", "after"), tuple(rows))
    yield from _judged(heldout, unit)
    yield from _classes(heldout, names)


def _judged(heldout: Mapping[str, Any], unit: str) -> Iterator[Block]:
    if "mean_drop" not in heldout:
        return
    error = heldout.get("standard_error")
    spread = "" if error is None else f", with a standard error over rows of {error:.4f}"
    guess = heldout.get("unigram_loss")
    guessed = "" if guess is None else f" A guess by frequency alone has {loss(guess)}."
    yield Words(
        f"The loss fell by {heldout['mean_drop']:.4f} {unit}{spread}; {heldout['rows_improved']:,} of "
        f"{heldout['rows']:,} rows got better.{guessed}"
    )


def _class_names(view: RunView) -> list[str]:
    """Of the labels, as the recipe has them; none where it does not say."""
    labels = (view.recipe.get("data") or {}).get("labels") or {}
    return [str(name) for name in labels.get("names") or []]


def _classes(heldout: Mapping[str, Any], given: Sequence[str]) -> Iterator[Block]:
    """F1 of each class, and who was taken for whom."""
    matrix = heldout.get("confusion_matrix_after")
    if not matrix:
        return
    names = [given[one] if one < len(given) else f"class {one}" for one in range(len(matrix))]
    scores = zip(names, heldout.get("f1_before") or [], heldout.get("f1_after") or [], strict=False)
    yield Table(
        "F1 by class",
        ("class", "before", "after"),
        tuple((name, loss(old), loss(new)) for name, old, new in scores),
    )
    yield Table(
        "labels (rows) by predictions (columns), after",
        ("label", *names),
        tuple((name, *(f"{count:,}" for count in row)) for name, row in zip(names, matrix, strict=True)),
    )


def _evaluations(view: RunView) -> Iterator[Block]:
    evaluations = view.readings.evaluations
    if len(evaluations) < 2:
        return
    names = [name for name in _METRICS if any(name in one for one in evaluations)]
    phased = any("phase" in one for one in evaluations)
    places, _ = thinned(range(len(evaluations)), [float(one["step"]) for one in evaluations], _ROWS)
    shown = [evaluations[int(place)] for place in places]
    left = len(evaluations) - len(shown)
    table = Table(
        "evaluations" + (f" ({left:,} of {len(evaluations):,} are left out here)" if left else ""),
        ("step", *(["phase"] if phased else ()), *(_METRICS[name][0] for name in names)),
        tuple(
            (
                f"{one['step']:,}",
                *([str(one.get("phase", ""))] if phased else ()),
                *(_METRICS[name][1](one.get(name)) for name in names),
            )
            for one in shown
        ),
        words=frozenset({1}) if phased else frozenset(),
    )
    yield Fold("Every evaluation", (table,))


def samples(view: RunView) -> Iterator[Block]:
    """A text continued before and after the training."""
    found = view.samples
    if found.get("prompt") is not None:
        yield Words(f"The prompt: {found['prompt']}")
    for when in ("before", "after"):
        if when in found:
            yield Listing(f"{when} the training", str(found[when]))
