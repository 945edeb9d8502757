"""What a guess without any context is worth, to be printed beside what a model reaches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kitae.data.examples import Examples, Sample
from kitae.data.rows import IGNORED
from kitae.train.job import Phase

MAX_ROWS = 20_000
"""Of the training rows, enough for the frequency of every common token."""
_BLOCK_ROWS = 1024
Counts = NDArray[np.int64]


def unigram_loss(train: Counts, heldout: Counts) -> float:
    """Nats a token when each is guessed by how often it stands in the training rows; counts [V] by id.

    One is added to every count, so that a token that was never seen has a chance too.
    """
    chances = (train + 1) / (train.sum() + len(train))
    return float(-(heldout * np.log(chances)).sum() / max(1, heldout.sum()))


def baseline(phase: Phase) -> dict[str, float]:
    """The unigram loss of held-out masked tokens, where a phase masks tokens."""
    if phase.recipe.objective != "masked-lm" or phase.heldout is None:
        return {}
    rows = phase.recipe.evaluation.max_rows
    train, heldout = _masked(phase.train, MAX_ROWS), _masked(phase.heldout, rows or len(phase.heldout))
    size = 1 + int(max(train.max(initial=0), heldout.max(initial=0)))
    counted = (np.bincount(one, minlength=size) for one in (train, heldout))
    return {"unigram_loss": unigram_loss(*counted)}


def _masked(examples: Examples[Any], rows: int) -> Counts:
    return np.concatenate(list(_blocks(examples, min(rows, len(examples)))))


def _blocks(examples: Examples[Any], rows: int) -> Iterator[Counts]:
    for start in range(0, rows, _BLOCK_ROWS):
        samples = [Sample(number) for number in range(start, min(start + _BLOCK_ROWS, rows))]
        labels = examples.read(samples).labels
        yield labels[labels != IGNORED]
