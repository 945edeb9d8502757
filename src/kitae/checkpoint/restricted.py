"""Reads what torch.save wrote without running any of it: tensors, plain containers, and nothing else.

A pickle may call whatever it likes by name. Here the names are a fixed list, nothing is ever imported, and no
callable of torch is called. Tensors stay in the file, as `StoredTensor`s. The one class besides is
TensorReference of torch-xla, which stands for a tensor in a file of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch

from kitae.checkpoint.pickle_machine import (
    BrokenPickleError,
    Maker,
    PickleMachine,
    RefusedNameError,
    Stateful,
)
from kitae.checkpoint.torch_archive import WAY_OUT, StoredTensor, TorchArchive
from kitae.errors import WeightsError
from kitae.parallel.layout import Shape

STORAGES = {
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}
"""Dtype of each kind of storage."""
_MAX_DEPTH = 64
"""Of containers, and most dimensions of a tensor."""


class TensorReference(Stateful):
    """torch_xla.utils.serialization.TensorReference: a tensor in `<file>.tensors/tensor_<tid>.pt`."""

    tid = -1

    def set_state(self, state: object) -> None:
        """Take the number of the tensor."""
        if not isinstance(state, dict) or type(state.get("tid")) is not int or state["tid"] < 0:
            raise BrokenPickleError("a tensor reference without a number")
        self.tid = state["tid"]


@dataclass(frozen=True)
class _StorageType:
    dtype: torch.dtype


@dataclass(frozen=True)
class _Storage:
    """Memory that tensors share: `numel` elements from byte `start`; dtype uint8 where it has none."""

    path: Path
    start: int
    dtype: torch.dtype
    numel: int


def open_pickled(path: Path) -> Any:
    """What a file of torch.save holds, with tensors left in the file as `StoredTensor`.

    WeightsError when the file is cut off, or needs anything but tensors, dtypes, sizes, plain containers and
    `TensorReference`; the message names what it wanted.
    """
    archive = TorchArchive(path)
    try:
        return PickleMachine(_NAMES, _storages(archive)).run(archive.pickle())
    except RefusedNameError as error:
        raise WeightsError(
            f"{path} asks for {str(error)[:200]!a}, and kitae runs no code from files of weights; where you "
            "trust it, load it with torch and save a dict of nothing but tensors"
        ) from None
    except BrokenPickleError as error:
        raise WeightsError(f"{path} holds a broken or manipulated pickle ({error}); {WAY_OUT}") from error


def replaced(path: Path, value: Any, kind: type, new: Callable[[Any], Any]) -> Any:
    """`value` of `path` with each object of `kind` in its containers replaced; WeightsError if too deep."""
    seen: dict[int, Any] = {}

    def walk(item: Any, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise WeightsError(f"{path} is nested more than {_MAX_DEPTH} deep; no file of weights is")
        # A container that stands in many places is walked once: nested, the places multiply.
        if id(item) not in seen:
            seen[id(item)] = _replaced(item, kind, new, lambda inner: walk(inner, depth + 1))
        return seen[id(item)]

    return walk(value, 0)


def _replaced(item: Any, kind: type, new: Callable[[Any], Any], walk: Callable[[Any], Any]) -> Any:
    if isinstance(item, kind):
        return new(item)
    if isinstance(item, dict):
        return {key: walk(inner) for key, inner in item.items()}
    if type(item) in (list, tuple):
        return type(item)(walk(inner) for inner in item)
    return item


def _storages(archive: TorchArchive) -> Callable[[Any], _Storage]:
    """Finds the memory that a tensor is in: a record of the archive."""
    found: dict[str, _Storage] = {}

    def find(given: Any) -> _Storage:
        kind, storage_type, key, _, numel = given
        if kind != "storage" or not isinstance(storage_type, _StorageType) or not isinstance(key, str):
            raise BrokenPickleError("a reference to something that is no storage")
        if key not in found:
            record = archive.record(f"data/{key}")
            if _sizes((numel,))[0] * storage_type.dtype.itemsize > record.size:
                raise WeightsError(f"{archive.path} is cut off at its record data/{key}; {WAY_OUT}")
            found[key] = _Storage(archive.path, record.start, storage_type.dtype, numel)
        return found[key]

    return find


def _tensor(storage: Any, offset: int, size: Any, stride: Any, *rest: Any) -> StoredTensor:
    """torch._utils._rebuild_tensor_v2, and _v3, which gives a dtype where the storage has none."""
    if not isinstance(storage, _Storage):
        raise BrokenPickleError("a tensor without a storage")
    dtype = next((given for given in rest if isinstance(given, torch.dtype)), storage.dtype)
    (start,), shape, strides = _sizes((offset,)), _sizes(size), _sizes(stride)
    last = start + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    held = storage.numel * storage.dtype.itemsize // dtype.itemsize
    count = prod(map(int, shape))
    if count > held or (count and last >= held):
        raise BrokenPickleError(f"a tensor of shape {shape} in a storage of {held} elements")
    return StoredTensor(storage.path, storage.start + start * dtype.itemsize, dtype, shape, strides)


def _empty() -> dict[str, Any]:
    """A dict of what follows: items as arguments could have keys whose hashes take for ever."""
    return {}


def _sizes(values: Iterable[int]) -> Shape:
    sizes = tuple(values)
    if len(sizes) > _MAX_DEPTH or not all(type(size) is int and 0 <= size < 1 << 63 for size in sizes):
        raise BrokenPickleError("a size that cannot be one")
    return sizes


_NAMES: dict[str, Any] = {
    "collections.OrderedDict": Maker(_empty),
    "torch.Size": Maker(lambda sizes: torch.Size(_sizes(sizes))),
    "torch._utils._rebuild_tensor_v2": Maker(_tensor),
    "torch._utils._rebuild_tensor_v3": Maker(_tensor),
    "torch._utils._rebuild_parameter": Maker(lambda data, requires_grad, hooks: data),
    "torch_xla.utils.serialization.TensorReference": Maker(TensorReference),
    **{f"torch.{name}Storage": _StorageType(dtype) for name, dtype in STORAGES.items()},
    "torch.storage.UntypedStorage": _StorageType(torch.uint8),
    **{str(dtype): dtype for dtype in (*STORAGES.values(), torch.float8_e4m3fn, torch.float8_e5m2)},
}
"""All that a pickle may use."""
