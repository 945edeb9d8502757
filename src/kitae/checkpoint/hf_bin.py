"""One pytorch_model*.bin file, read without running anything that its pickle asks for."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import torch

from kitae.checkpoint.pipe import TensorInfo
from kitae.checkpoint.restricted import open_pickled
from kitae.checkpoint.torch_archive import WAY_OUT, StoredTensor
from kitae.errors import WeightsError
from kitae.parallel.layout import Box

_Tensors = dict[str, StoredTensor] | dict[str, torch.Tensor]


class BinFile:
    """A state dict of plain tensors; raises `WeightsError` when the pickle holds anything else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state: _Tensors = _open(path)
        self.tensors = {name: TensorInfo(tuple(t.shape), t.dtype) for name, t in self._state.items()}

    def read(self, name: str, box: Box) -> torch.Tensor:
        """The box of tensor `name`, in memory of its own."""
        tensor = self._state[name]
        return tensor.read(box) if isinstance(tensor, StoredTensor) else tensor[box.slices()].clone()


def _open(path: Path) -> _Tensors:
    with path.open("rb") as file:
        start = file.read(2)
    if not start.startswith((b"PK", b"\x80")):
        raise WeightsError(f"{path} is no file of torch.save (a broken download?); {WAY_OUT}")
    zipped = start == b"PK"
    state, kind = (open_pickled(path), StoredTensor) if zipped else (_load_old(path), torch.Tensor)
    if not isinstance(state, dict):
        raise WeightsError(f"{path} holds a {type(state).__name__}; kitae reads plain dicts of tensors")
    for name, value in state.items():
        if not isinstance(value, kind):
            raise WeightsError(
                f"{path}: {name} is a {type(value).__name__}, not a tensor; kitae reads plain state dicts"
            )
    return {str(name): value for name, value in state.items()}


def _load_old(path: Path) -> Any:
    """The whole of a file from before torch 1.6, which is no zip archive."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickles that it may not know: those are told below
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path} needs more than tensors to be unpickled, and kitae runs no code from weights; "
            "save it as safetensors on a machine where you trust it"
        ) from error
    except Exception as error:  # its reader has one for each kind of damage
        raise WeightsError(f"{path} cannot be read (a truncated download?); {WAY_OUT}") from error
