"""Optimizer files of one tensor- and pipeline-parallel rank of neuronx-distributed (NxD), put together.

Each data-parallel rank's file holds, by parameter number, `step`, `exp_avg` and `exp_avg_sq`, and the fp32
masters where they were saved. Under ZeRO-1 these are the rank's chunk of dimension 0, which is padded to a
multiple of the data-parallel size. Numbers count parameters, group after group. Which parameter a number is
follows from the order of keys in the model's file of the same rank and, with two groups, from the rule of
NxD's scripts: a parameter with "bias" or "norm" in its name is not decayed. Shapes are checked, but they do
not tell apart two parameters of one shape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kitae.checkpoint.gathered import LocalTensor
from kitae.checkpoint.nxd_file import State, open_rank_file
from kitae.checkpoint.pipe import TensorInfo
from kitae.checkpoint.torch_archive import WAY_OUT, StoredTensor
from kitae.errors import WeightsError
from kitae.parallel.layout import Box, Shape

MOMENTS = ("exp_avg", "exp_avg_sq")
MASTERS = "weights"
"""Kind of the fp32 masters."""
NOT_DECAYED = ("bias", "norm")
WEIGHTS_ALONE = (
    "the weights alone go --to hf and --to nxd, and --to kitae from the folder model/ beside optim/"
)
_SEQUENCES = (list, tuple)
Kinds = dict[str, dict[str, LocalTensor]]


@dataclass(frozen=True)
class Chunks:
    """A tensor cut along dimension 0 into equal chunks, the last ones padded."""

    shape: Shape
    parts: tuple[StoredTensor, ...]

    @property
    def info(self) -> TensorInfo:
        """Its shape without padding, and its dtype."""
        return TensorInfo(self.shape, self.parts[0].dtype)

    def read_into(self, box: Box, target: torch.Tensor) -> None:
        """Fill a tensor with a box of it, out of the chunks that the box meets."""
        begin, end = box.start[0], box.start[0] + box.shape[0]
        for number, part in enumerate(self.parts):
            first = number * part.shape[0]
            low, high = max(begin, first), min(end, first + part.shape[0])
            if low < high:
                run = Box((low - first, *box.start[1:]), (high - low, *box.shape[1:]))
                part.read_into(run, target[low - begin : high - begin])


@dataclass(frozen=True)
class RankMoments:
    """What the data-parallel ranks hold for one file of the model."""

    step: int
    """Optimizer updates done."""
    kinds: Kinds
    """`exp_avg`, `exp_avg_sq`, and `weights` where masters were saved: a tensor for each key of the model."""


@dataclass(frozen=True)
class _File:
    """One data-parallel rank's file; dicts are by parameter number."""

    path: Path
    groups: Sequence[Mapping[str, Any]]
    moments: Mapping[int, Mapping[str, Any]]
    masters: Mapping[int, Any]
    shapes: Mapping[int, Sequence[int]]


def rank_moments(paths: Sequence[Path], model: State) -> RankMoments:
    """The state in the files of data-parallel ranks 0, 1, ...; WeightsError when it doesn't fit `model`."""
    files = [_open(path) for path in paths]
    names = parameter_names(paths[0], files[0].groups, model)
    for file in files:
        _check(file, names, model)
    kinds: Kinds = {
        kind: {
            name: _chunks(files, name, model[name].shape, [file.moments[number].get(kind) for file in files])
            for number, name in enumerate(names)
        }
        for kind in MOMENTS
    }
    if all(file.masters for file in files):
        kinds[MASTERS] = {
            name: _chunks(files, name, model[name].shape, [file.masters.get(number) for file in files])
            for number, name in enumerate(names)
        }
    return RankMoments(_step(files, names), kinds)


def parameter_names(path: Path, groups: Sequence[Mapping[str, Any]], model: State) -> list[str]:
    """The key of each parameter number: in the model's order, of two groups the decayed one first."""
    sizes = [len(group["params"]) for group in groups]
    if sizes == [len(model)]:
        return list(model)
    plain = [name for name in model if any(part in name for part in NOT_DECAYED)]
    split = [[name for name in model if name not in plain], plain]
    if len(groups) == 2 and groups[1].get("weight_decay") and not groups[0].get("weight_decay"):
        split.reverse()
    if sizes == [len(names) for names in split]:
        return split[0] + split[1]
    raise WeightsError(
        f"{path}: the optimizer has groups of {' and '.join(map(str, sizes))} parameters, and the model's "
        f"file has {len(model) - len(plain)} tensors that NxD's scripts decay and {len(plain)} others; "
        f"which is which cannot be told: {WEIGHTS_ALONE}"
    )


def same(what: str, values: Mapping[str, int]) -> int:
    """The one value that all have; WeightsError names two that have not."""
    (first, value), *others = values.items()
    for name, other in others:
        if other != value:
            raise WeightsError(f"{what} is {value} in {first} and {other} in {name}; {WAY_OUT}")
    return value


def _open(path: Path) -> _File:
    state = open_rank_file(path)
    held = state if isinstance(state, dict) else {}
    file = _File(
        path,
        held.get("param_groups", ()),
        held.get("base_state") or held.get("state", {}),
        held.get("sharded_master_weights", {}),
        held.get("shape_info", {}),
    )
    dicts = ((file.moments, dict), (file.masters, object), (file.shapes, _SEQUENCES))
    if not _are_groups(file.groups) or not all(_holds(value, kind) for value, kind in dicts):
        raise WeightsError(f"{path} holds no state of an Adam optimizer; {WEIGHTS_ALONE}")
    return file


def _are_groups(value: Any) -> bool:
    return isinstance(value, _SEQUENCES) and all(
        isinstance(one, dict) and isinstance(one.get("params"), _SEQUENCES) for one in value
    )


def _holds(value: Any, kind: type | tuple[type, ...]) -> bool:
    """Whether it is a dict of such values: a file may hold anything."""
    return isinstance(value, dict) and all(isinstance(one, kind) for one in value.values())


def _check(file: _File, names: Sequence[str], model: State) -> None:
    if set(file.moments) != set(range(len(names))):
        raise WeightsError(
            f"{file.path} has state for {len(file.moments)} parameters, its groups have {len(names)}; "
            f"{WAY_OUT}"
        )
    for number, name in enumerate(names):
        shape = tuple(file.shapes.get(number, model[name].shape))
        if shape != model[name].shape:
            raise WeightsError(
                f"{file.path}: parameter {number} has shape {shape}, but {name}, which it should be by the "
                f"order of the model's file, has {model[name].shape}; {WEIGHTS_ALONE}"
            )


def _chunks(files: Sequence[_File], name: str, shape: Shape, parts: Sequence[Any]) -> Chunks:
    """The chunks of one parameter, which must be as large as so many data-parallel ranks make them."""
    due = (-(-shape[0] // len(parts)), *shape[1:])
    for file, part in zip(files, parts, strict=True):
        if not isinstance(part, StoredTensor) or part.shape != due:
            found = f"of shape {part.shape}" if isinstance(part, StoredTensor) else f"a {type(part).__name__}"
            raise WeightsError(
                f"{file.path}: the state of {name} {shape} is {found} where {due} is due with {len(parts)} "
                f"data-parallel ranks; are all files there? {WAY_OUT}"
            )
    dtypes = {part.dtype for part in parts}
    if len(dtypes) > 1:
        raise WeightsError(f"{files[0].path.parent}: the state of {name} has several dtypes; {WAY_OUT}")
    return Chunks(shape, tuple(parts))


def _step(files: Sequence[_File], names: Sequence[str]) -> int:
    found = {
        f"{file.path} for {name}": _whole(file, file.moments[number].get("step"))
        for file in files
        for number, name in enumerate(names)
    }
    return same("the number of updates", found)


def _whole(file: _File, step: Any) -> int:
    """A number of updates, which may be a tensor."""
    value = step.read().item() if isinstance(step, StoredTensor) and step.shape in ((), (1,)) else step
    if not isinstance(value, (int, float)) or not math.isfinite(value) or value != int(value) or value < 0:
        raise WeightsError(f"{file.path}: the number of updates is {value!r}; {WAY_OUT}")
    return int(value)
