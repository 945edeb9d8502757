"""Rotary settings of a configuration, in every spelling in which Hugging Face folders hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kitae.errors import WeightsError
from kitae.model.fields import number_of

KINDS = ("default", "linear", "llama3")
LLAMA3_FIELDS = ("factor", "low_freq_factor", "high_freq_factor")


@dataclass(frozen=True)
class RopeConfig:
    """Base and scaling of the rotary angles; `kind` is one of KINDS and reads only its own fields."""

    theta: float = 10000.0
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_max_position_embeddings: int = 0

    @classmethod
    def from_hf(cls, config: Mapping[str, Any], max_position_embeddings: int) -> RopeConfig:
        """Read `rope_theta` and `rope_scaling`, or `rope_parameters`; WeightsError if unsupported."""
        field = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
        values = config.get(field) or {}
        if not isinstance(values, Mapping) or any(isinstance(value, Mapping) for value in values.values()):
            raise WeightsError(
                f"config.json: {field}: {values!r} is not supported; supported: one mapping for all layers"
            )
        spelling = "rope_type" if "rope_type" in values else "type"
        kind = values.get(spelling) or "default"
        if kind not in KINDS:
            raise WeightsError(
                f"config.json: {field}.{spelling}: {kind} is not supported; supported: {', '.join(KINDS)}"
            )
        _require_full_rotation(config, values, field)
        theta = values.get("rope_theta") or config.get("rope_theta") or cls.theta
        original = config.get("original_max_position_embeddings") or max_position_embeddings
        return cls(
            number_of({"rope_theta": theta}, "rope_theta"), kind, **_READERS[kind](values, field, original)
        )

    def to_hf(self) -> dict[str, Any]:
        """`rope_theta` and `rope_scaling`, which every version of transformers reads."""
        scaling = {name: getattr(self, name) for name in _WRITTEN[self.kind]}
        return {
            "rope_theta": self.theta,
            "rope_scaling": {"rope_type": self.kind, **scaling} if scaling else None,
        }


def _require_full_rotation(config: Mapping[str, Any], values: Mapping[str, Any], field: str) -> None:
    for name, share in (
        ("partial_rotary_factor", config.get("partial_rotary_factor")),
        (f"{field}.partial_rotary_factor", values.get("partial_rotary_factor")),
    ):
        if share not in (None, 1):
            raise WeightsError(
                f"config.json: {name}: {share} is not supported; supported: 1.0 (all of each head rotates)"
            )


def _read_default(values: Mapping[str, Any], field: str, max_positions: int) -> dict[str, Any]:
    return {}


def _read_linear(values: Mapping[str, Any], field: str, max_positions: int) -> dict[str, Any]:
    return {"factor": _number(values, field, "factor")}


def _read_llama3(values: Mapping[str, Any], field: str, max_positions: int) -> dict[str, Any]:
    numbers: dict[str, Any] = {name: _number(values, field, name) for name in LLAMA3_FIELDS}
    original = values.get("original_max_position_embeddings") or max_positions
    return {**numbers, "original_max_position_embeddings": int(original)}


def _number(values: Mapping[str, Any], field: str, name: str) -> float:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise WeightsError(f"config.json: {field}.{name}: {value!r} where a number above 0 is needed")
    return float(value)


_READERS = {"default": _read_default, "linear": _read_linear, "llama3": _read_llama3}
_WRITTEN: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": (*LLAMA3_FIELDS, "original_max_position_embeddings"),
}
