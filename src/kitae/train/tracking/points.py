"""Which numbers of a metrics line are tracked, and how they are called."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from kitae.train.metrics import Record
from kitae.train.tracking.interface import Point

TRAIN = (
    *("loss", "learning_rate", "grad_norm", "step_seconds", "tokens_per_s", "real_tokens_per_s"),
    *("utilisation", "peak_memory_bytes", "total_padded_tokens", "total_real_tokens"),
)
"""Fields of a line of kind `train`."""


def group_of(record: Record) -> str:
    """What stands before the names; of evaluations with the phase, of which one step can have two."""
    phase = record.get("phase") if record["kind"] == "evaluation" else None
    return record["kind"] if phase is None else f"{record['kind']}/{phase}"


def point_of(record: Record) -> Point | None:
    """The numbers of a line; None where it has none."""
    values = _VALUES.get(record["kind"], _nothing)(record)
    group = group_of(record)
    named = {f"{group}/{name}": float(value) for name, value in values.items()}
    return Point(record["step"], time.time(), named) if named else None


def _train(record: Record) -> Mapping[str, Any]:
    return {name: record[name] for name in TRAIN if record.get(name) is not None}


def _evaluation(record: Record) -> Mapping[str, Any]:
    """Loss, perplexity, shares; what is counted is the same each time."""
    return {name: value for name, value in record.items() if isinstance(value, float) and name != "seconds"}


def _ranks(record: Record) -> Mapping[str, Any]:
    seconds = record["compute_seconds"]
    return {"slowest_compute_seconds": max(seconds), "median_compute_seconds": median(seconds)}


def _nothing(record: Record) -> Mapping[str, Any]:
    return {}


_VALUES: Mapping[str, Callable[[Record], Mapping[str, Any]]] = {
    "train": _train,
    "evaluation": _evaluation,
    "ranks": _ranks,
}
"""By kind of line."""
