"""One rank's file of a neuronx-distributed checkpoint, with or without xser.

With xser, the file holds a `TensorReference` for each tensor, whose values are in `<file>.tensors/`. NxD's
converter, which runs on a CPU, leaves the tensors in the file even so: both are read alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kitae.checkpoint.hf import COMPUTED
from kitae.checkpoint.restricted import TensorReference, open_pickled, replaced
from kitae.checkpoint.torch_archive import WAY_OUT, StoredTensor
from kitae.errors import WeightsError

_MODEL_KEY = "model"
State = Mapping[str, StoredTensor]


def open_rank_file(path: Path) -> Any:
    """What the file holds, with tensors left where they are; WeightsError when something is broken."""
    folder = path.with_name(f"{path.name}.tensors")

    def referred(reference: TensorReference) -> StoredTensor:
        file = folder / f"tensor_{reference.tid}.pt"
        if not file.is_file():
            raise WeightsError(f"{path} refers to tensor {reference.tid}, but there is no {file}; {WAY_OUT}")
        tensor = open_pickled(file)
        if not isinstance(tensor, StoredTensor):
            raise WeightsError(f"{file} holds a {type(tensor).__name__} where a tensor is due; {WAY_OUT}")
        return tensor

    return replaced(path, open_pickled(path), TensorReference, referred)


def open_model_file(path: Path) -> State:
    """The tensors of a rank's model by their keys, without buffers that the model computes itself."""
    state = open_rank_file(path)
    if isinstance(state, dict) and isinstance(state.get(_MODEL_KEY), dict):
        state = state[_MODEL_KEY]
    if not isinstance(state, dict) or not state:
        raise WeightsError(f"{path} holds no dict of tensors; {WAY_OUT}")
    for key, value in state.items():
        if not isinstance(value, StoredTensor):
            raise WeightsError(
                f"{path}: {key} is a {type(value).__name__}, not a tensor; it is no model's file"
            )
    return {str(key): tensor for key, tensor in state.items() if not COMPUTED.search(str(key))}
