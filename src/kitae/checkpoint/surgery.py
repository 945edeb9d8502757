"""The model that an objective needs, out of one with another head: what it lacks is drawn, the rest left.

Only heads (with the pooler) are ever drawn or left; an encoder without all of its own tensors is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from kitae.checkpoint.model_folder import ModelFolder, checked_model, head_is_tied, model_config_of
from kitae.checkpoint.pipe import Renamed, TensorInfo, TensorSource
from kitae.model.architecture import ModelConfig, architecture_of, table_of
from kitae.model.init import full_tensor
from kitae.parallel.layout import Box, ParameterLayout


def adapted_model(
    folder: Path,
    config: Mapping[str, Any],
    source: TensorSource,
    *,
    seed: int,
    generation_config: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> ModelFolder:
    """The tensors of any model of a kind as that of `config`, which `targets.target_config` has made.

    Missing heads are drawn from `seed` and their names, heads of no use are left, and `notes` of the result
    name all of both. WeightsError when anything else is missing, unknown or of another shape.
    """
    model_config = model_config_of(folder, config)
    kind = architecture_of(model_config)
    stored = Renamed(source, kind.stored_names(model_config, source.tensors()))
    tied, _ = head_is_tied(stored, model_config)
    drawn = _to_draw(stored, model_config, tied)
    complete = Drawn(stored, drawn, seed, model_config.initializer_range)
    said = [f"drawn at random, as there is none to start from: {', '.join(complete.drawn)}"] if drawn else []
    return checked_model(
        folder,
        config,
        model_config,
        complete,
        generation_config=generation_config,
        notes=(*notes, *said),
    )


class Drawn:
    """A source, completed (or changed) by random tensors: those of `layouts`."""

    def __init__(
        self, source: TensorSource, layouts: Sequence[ParameterLayout], seed: int, std: float
    ) -> None:
        self._source, self._seed, self._std = source, seed, std
        self.drawn = {
            piece.tensor: (piece.full_shape, layout.initial) for layout in layouts for piece in layout.pieces
        }
        """Shape and kind by name."""
        new = {name: TensorInfo(shape, torch.float32) for name, (shape, _) in self.drawn.items()}
        self._infos = {**source.tensors(), **new}

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor's shape and dtype; drawn ones are fp32."""
        return self._infos

    def read(self, name: str, box: Box | None = None) -> torch.Tensor:
        """The box of a tensor."""
        if name not in self.drawn:
            return self._source.read(name, box)
        shape, initial = self.drawn[name]
        whole = full_tensor(name, shape, initial, self._seed, self._std)
        return whole if box is None else whole[box.slices()]


def _to_draw(source: TensorSource, config: ModelConfig, tied: bool) -> list[ParameterLayout]:
    """The layouts of heads that the source lacks, or has for another number of classes."""
    infos = source.tensors()
    kind = architecture_of(config)

    def is_missing(layout: ParameterLayout) -> bool:
        pieces = layout.pieces
        return all(kind.left_out(one.tensor) for one in pieces) and any(
            one.tensor not in infos or infos[one.tensor].shape != one.full_shape for one in pieces
        )

    return [layout for layout in table_of(config, tied)(1, 0) if is_missing(layout)]
