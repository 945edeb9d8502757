"""Two sources of full tensors, compared by name and in blocks: bits, and how far values are apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from kitae.checkpoint.bits import same_bits
from kitae.checkpoint.hf_sink import HEAD
from kitae.checkpoint.model_folder import EMBEDDING
from kitae.checkpoint.pipe import TensorInfo, TensorSource, blocks
from kitae.parallel.layout import Box

Verdict = Literal["equal", "dtype", "values", "shape", "missing", "extra"]
SAYS: dict[Verdict, str] = {
    "equal": "equal to the bit",
    "dtype": "equal in value, of another dtype",
    "values": "with other values",
    "shape": "of another shape",
    "missing": "only in the first",
    "extra": "only in the second",
}


@dataclass(frozen=True)
class Compared:
    """One tensor of two sources."""

    name: str
    verdict: Verdict
    first: TensorInfo | None = None
    second: TensorInfo | None = None
    difference: float = 0.0
    """Largest absolute difference of two values; NaN where one is NaN, or where both are not finite."""
    different: int = 0
    """Elements that differ in value or, when none does, in bits."""

    def as_dict(self) -> dict[str, object]:
        """As JSON values, in which what is not finite is text."""
        finite = math.isfinite(self.difference)
        return {
            "name": self.name,
            "verdict": self.verdict,
            "first": _shown(self.first),
            "second": _shown(self.second),
            "difference": self.difference if finite else str(self.difference),
            "different": self.different,
        }


def compare(first: TensorSource, second: TensorSource) -> list[Compared]:
    """Every tensor of either, in the order of the first; a head that is only in one may be the embedding."""
    infos, others = dict(first.tensors()), dict(second.tensors())
    if (HEAD in infos) != (HEAD in others):
        # The one without a head computes with its embedding.
        lacking = others if HEAD in infos else infos
        if EMBEDDING in lacking:
            lacking[HEAD] = lacking[EMBEDDING]
    found = [_compare(name, first, second, infos, others) for name in infos]
    return [*found, *(Compared(name, "extra", None, others[name]) for name in others if name not in infos)]


def summary(found: Iterable[Compared]) -> Mapping[Verdict, list[Compared]]:
    """The tensors by verdict; only verdicts that occur."""
    by_verdict: dict[Verdict, list[Compared]] = {}
    for one in found:
        by_verdict.setdefault(one.verdict, []).append(one)
    return by_verdict


def _compare(
    name: str,
    first: TensorSource,
    second: TensorSource,
    infos: Mapping[str, TensorInfo],
    others: Mapping[str, TensorInfo],
) -> Compared:
    info, other = infos[name], others.get(name)
    if other is None:
        return Compared(name, "missing", info)
    if info.shape != other.shape:
        return Compared(name, "shape", info, other)
    difference, different, same = 0.0, 0, info.dtype == other.dtype
    for box in blocks(max(info, other, key=lambda one: one.nbytes)):
        left, right = _read(first, name, box), _read(second, name, box)
        if same_bits(left, right):
            continue
        same = False
        gap, count = _gap(left, right)
        difference, different = _worse(difference, gap), different + count
    if same:
        return Compared(name, "equal", info, other)
    if different == 0 and info.dtype != other.dtype:
        return Compared(name, "dtype", info, other)
    return Compared(name, "values", info, other, difference, different)


def _read(source: TensorSource, name: str, box: Box) -> torch.Tensor:
    held = EMBEDDING if name == HEAD and HEAD not in source.tensors() else name
    return source.read(held, box)


def _gap(one: torch.Tensor, other: torch.Tensor) -> tuple[float, int]:
    """Largest difference, and how many elements differ; of equal values (0 and -0), in bits."""
    left, right = one.double(), other.double()
    unequal = left != right
    count = int(unequal.sum())
    if count:
        return (left - right)[unequal].abs().max().item(), count
    if one.dtype != other.dtype:
        return 0.0, 0
    width = one.dtype.itemsize
    return 0.0, int((_bits(one).view(-1, width) != _bits(other).view(-1, width)).any(1).sum())


def _worse(one: float, other: float) -> float:
    """The larger, for which NaN counts as largest."""
    return math.nan if math.isnan(one) or math.isnan(other) else max(one, other)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _shown(info: TensorInfo | None) -> dict[str, object] | None:
    return (
        None if info is None else {"shape": list(info.shape), "dtype": str(info.dtype).removeprefix("torch.")}
    )
