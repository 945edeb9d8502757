"""Two weights on the disk compared, for a person and for a program."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from kitae.checkpoint.compare import SAYS, Compared, summary
from kitae.checkpoint.nxd_format import Order
from kitae.checkpoint.opened import Opened, open_weights
from kitae.checkpoint.pipe import Renamed, TensorSource
from kitae.errors import WeightsError
from kitae.model.encoder_config import MODEL_TYPE, EncoderConfig
from kitae.model.encoder_names import stored_names

_SHOWN = 10
"""Tensors that are told one by one, at most, of each kind of difference."""


def open_both(
    source: Path, other: Path, config: Path | None = None, order: Order | None = None
) -> tuple[Opened, Opened]:
    """Open both; where one carries no configuration, that of the other is taken."""
    try:
        first = open_weights(source, config, order=order)
    except WeightsError as error:
        # It may be one that needs a configuration which it does not carry.
        try:
            like = open_weights(other, config, order=order).config
        except WeightsError:
            raise error from None
        first = open_weights(source, like=like, order=order)
    return first, open_weights(other, like=first.config, order=order)


def comparable(first: Opened, second: Opened) -> tuple[TensorSource, TensorSource]:
    """Both sources; those of encoders, which had several names, under the names of the first's class."""
    config = first.config or {}
    if config.get("model_type") != MODEL_TYPE or (second.config or config).get("model_type") != MODEL_TYPE:
        return first.source, second.source
    parsed = EncoderConfig.from_hf(config)
    named = [Renamed(one.source, stored_names(parsed, one.source.tensors())) for one in (first, second)]
    return named[0], named[1]


def lines(first: Opened, second: Opened, found: Sequence[Compared]) -> Iterator[str]:
    """What was compared, the tensors that differ, and the sums."""
    for opened in (first, second):
        yield f"{opened.path}: {opened.title}"
        yield from (f"  note: {note}" for note in opened.notes)
    by_verdict = summary(found)
    for verdict, group in by_verdict.items():
        if verdict == "equal":
            continue
        shown = sorted(group, key=lambda one: -one.difference) if verdict == "values" else group
        yield from (f"  {_told(one)}" for one in shown[:_SHOWN])
        if len(shown) > _SHOWN:
            yield f"  ... and {len(shown) - _SHOWN} more {SAYS[verdict]}"
    counts = ", ".join(f"{len(group)} {SAYS[verdict]}" for verdict, group in by_verdict.items())
    yield f"{len(found)} tensors: {counts}"


def as_json(first: Opened, second: Opened, found: Sequence[Compared]) -> str:
    """The same as one JSON object."""
    return json.dumps(
        {
            "first": {"path": str(first.path), "format": first.kind, "title": first.title},
            "second": {"path": str(second.path), "format": second.kind, "title": second.title},
            "equal": all(one.verdict == "equal" for one in found),
            "counts": {verdict: len(group) for verdict, group in summary(found).items()},
            "tensors": [one.as_dict() for one in found],
        }
    )


def _told(one: Compared) -> str:
    says = SAYS[one.verdict]
    first, second = one.first, one.second
    if one.verdict == "values":
        return f"{one.name}: {one.different:,} values differ, by at most {one.difference:.3g}"
    if first is None or second is None:
        return f"{one.name}: {says}"
    if one.verdict == "shape":
        return f"{one.name}: {first.shape} and {second.shape}"
    return f"{one.name}: {says} ({_dtype(first.dtype)} and {_dtype(second.dtype)})"


def _dtype(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")
