"""One pytorch_model*.bin file, memory-mapped and read without running anything that its pickle asks for."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch

from kitae.checkpoint.pipe import TensorInfo
from kitae.errors import WeightsError
from kitae.parallel.layout import Box


class BinFile:
    """A state dict of plain tensors; raises `WeightsError` when the pickle holds anything else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state: dict[str, torch.Tensor] = _load(path)
        self.tensors = {name: TensorInfo(tuple(t.shape), t.dtype) for name, t in self._state.items()}

    def read(self, name: str, box: Box) -> torch.Tensor:
        """The box of tensor `name`, copied out of the mapped file."""
        return self._state[name][box.slices()].clone()


def _load(path: Path) -> dict[str, torch.Tensor]:
    try:
        state = _torch_load(path)
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path} needs more than tensors to be unpickled, and kitae runs no code from weights; "
            "save it as safetensors on a machine where you trust it"
        ) from error
    except (RuntimeError, EOFError, ValueError) as error:
        raise WeightsError(
            f"{path} cannot be read (a truncated download?); delete it and download it again"
        ) from error
    for name, value in state.items() if isinstance(state, dict) else [("the file", state)]:
        if not isinstance(value, torch.Tensor):
            raise WeightsError(
                f"{path}: {name} is a {type(value).__name__}, not a tensor; kitae reads plain state dicts"
            )
    return dict(state)


def _torch_load(path: Path) -> Any:
    # Files from before torch 1.6 are no zip archives and cannot be mapped.
    with path.open("rb") as file:
        zipped = file.read(2) == b"PK"
    return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
