"""Fields of a config.json, checked as they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kitae.errors import WeightsError

_MOST = {"num_hidden_layers": 100_000}
"""What a damaged number would be taken as a table of."""


def require_supported(config: Mapping[str, Any], must_be: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise WeightsError for a field with another value than those of `must_be`; None is always fine."""
    for name, allowed in must_be.items():
        value = config.get(name)
        if value is not None and value not in allowed:
            supported = " or ".join(map(repr, allowed)) or "none (convert to a full-precision folder first)"
            raise WeightsError(f"config.json: {name}: {value!r} is not supported; supported: {supported}")


def size_of(config: Mapping[str, Any], name: str) -> int:
    """A whole number above 0; WeightsError when it is missing, anything else, or more than any model has."""
    value = config.get(name)
    if value is None:
        raise WeightsError(f"config.json: {name} is missing; it is needed to build the model")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise WeightsError(f"config.json: {name}: {value!r} where a whole number above 0 is needed")
    if value > _MOST.get(name, value):
        raise WeightsError(f"config.json: {name}: {value} is more than any model has ({_MOST[name]} at most)")
    return value


def number_of(config: Mapping[str, Any], name: str) -> float:
    """A number; WeightsError when it is anything else."""
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WeightsError(f"config.json: {name}: {value!r} where a number is needed")
    return float(value)
