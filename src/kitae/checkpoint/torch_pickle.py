"""The pickles of a torch.save archive, written for tensors whose values come later or lie elsewhere.

Made of opcodes (protocol 2, as torch.save uses): the pickle module needs the tensors to be there, and the
class of references to be installed.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from math import prod

import torch

from kitae.checkpoint.coverage import listed
from kitae.checkpoint.pipe import TensorInfo
from kitae.errors import WeightsError
from kitae.parallel.layout import Shape

_STORAGES = {
    torch.float64: "DoubleStorage",
    torch.float32: "FloatStorage",
    torch.float16: "HalfStorage",
    torch.bfloat16: "BFloat16Storage",
}


def pickled_state(tensors: Mapping[str, TensorInfo]) -> bytes:
    """A dict of contiguous tensors, the n-th of which has its values in record `data/n`."""
    return _program(_dict((name, _tensor(index, info)) for index, (name, info) in enumerate(tensors.items())))


def pickled_tensor(info: TensorInfo) -> bytes:
    """One contiguous tensor with its values in record `data/0`."""
    return _program(_tensor(0, info))


def pickled_references(names: Iterable[str]) -> bytes:
    """A dict of torch_xla's references, the n-th of which stands for the tensor in `tensor_n.pt`."""
    return _program(_dict((name, _reference(index)) for index, name in enumerate(names)))


def require_known_dtypes(tensors: Mapping[str, TensorInfo]) -> None:
    """Raise WeightsError naming the tensors of a dtype that these pickles are not made for."""
    unknown = [f"{name} ({info.dtype})" for name, info in tensors.items() if info.dtype not in _STORAGES]
    if unknown:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in _STORAGES)
        raise WeightsError(f"only {known} can be written here, not: {listed(unknown)}; choose one of these")


def _program(value: bytes) -> bytes:
    return pickle.PROTO + b"\x02" + value + pickle.STOP


def _dict(items: Iterable[tuple[str, bytes]]) -> bytes:
    pairs = b"".join(_plain(name) + value for name, value in items)
    return pickle.EMPTY_DICT + pickle.MARK + pairs + pickle.SETITEMS


def _tensor(record: int, info: TensorInfo) -> bytes:
    storage = _tuple(
        _plain("storage"),
        _global("torch", _STORAGES[info.dtype]),
        _plain(str(record)),
        _plain("cpu"),
        _plain(prod(info.shape)),
    )
    no_hooks = _global("collections", "OrderedDict") + pickle.EMPTY_TUPLE + pickle.REDUCE
    arguments = _tuple(
        storage + pickle.BINPERSID,
        _plain(0),
        _plain(info.shape),
        _plain(_strides(info.shape)),
        _plain(False),
        no_hooks,
    )
    return _global("torch._utils", "_rebuild_tensor_v2") + arguments + pickle.REDUCE


def _reference(tensor: int) -> bytes:
    made = _global("torch_xla.utils.serialization", "TensorReference") + pickle.EMPTY_TUPLE + pickle.NEWOBJ
    return made + pickle.EMPTY_DICT + _plain("tid") + _plain(tensor) + pickle.SETITEM + pickle.BUILD


def _strides(shape: Shape) -> Shape:
    return tuple(prod(shape[dim + 1 :]) for dim in range(len(shape)))


def _tuple(*values: bytes) -> bytes:
    return pickle.MARK + b"".join(values) + pickle.TUPLE


def _global(module: str, name: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


def _plain(value: str | int | Shape) -> bytes:
    """A value as the pickle module writes it, without the beginning and the end of a program."""
    return pickle.dumps(value, 2)[2:-1]
