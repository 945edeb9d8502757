"""Updates of a decoder's parameters as one rank of a mesh makes them, without the decoder: little to import.

Weights and gradients are random full tensors, of which each rank takes its parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import torch

from kitae.backend.group import ALONE
from kitae.model.config import DecoderConfig
from kitae.model.layouts import decoder_layouts
from kitae.parallel.assembly import assemble, pieces_of
from kitae.parallel.layout import Box, ParameterLayout
from kitae.parallel.mesh import Mesh
from kitae.parallel.shares import Shares
from kitae.recipe.training import OptimizerConfig
from kitae.train.optimizer import OPTIMIZERS
from kitae.train.precision import PRECISIONS

TABLE = decoder_layouts(
    DecoderConfig.from_hf(
        {
            "model_type": "qwen2",
            "vocab_size": 61,
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 128,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
        }
    ),
    True,
)
CONFIG = OptimizerConfig(learning_rate=0.02, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01)
RATES = (0.02, 0.01, 0.03)
Boxes = list[tuple[str, Box, torch.Tensor]]
"""Name of a full tensor, box, and the values in it."""


def full_values(purpose: str) -> dict[str, torch.Tensor]:
    """Random values for each full tensor, of another size for each."""
    made = {}
    for piece in (piece for layout in TABLE(1, 0) for piece in layout.pieces):
        random = torch.Generator().manual_seed(_number(piece.tensor, purpose))
        scale = 1 + _number(piece.tensor, "scale") % 7
        made[piece.tensor] = torch.randn(piece.full_shape, generator=random) * scale
    return made


def _number(*key: str) -> int:
    return sum(ord(letter) * (index + 1) for index, letter in enumerate(repr(key)))


def local_values(layouts: Iterable[ParameterLayout], purpose: str) -> dict[str, torch.Tensor]:
    full = full_values(purpose)
    return {
        layout.name: assemble(layout, lambda name, box: full[name][box.slices()], torch.float32).contiguous()
        for layout in layouts
    }


def updated(mesh: Mesh, kind: str, precision: str, zero1: bool) -> Boxes:
    """Give this rank's boxes of the weights after three updates."""
    table = TABLE(mesh.tensor.size, mesh.tensor.rank)
    layouts = [replace(layout, name=layout.name.replace(".", "_")) for layout in table]
    model = torch.nn.Module()
    for name, values in local_values(layouts, "weights").items():
        model.register_parameter(name, torch.nn.Parameter(values))
    shares = Shares(layouts, mesh.data if zero1 else ALONE)
    weights = PRECISIONS[precision](model, shares)
    decayed = {layout.name for layout in layouts if layout.decay}
    optimizer = OPTIMIZERS[kind](weights, decayed, CONFIG, fused=True, seed=5, shares=shares, mesh=mesh)
    for step, rate in enumerate(RATES):
        gradients = local_values(layouts, f"gradient {step}")
        optimizer.step(rate, {name: shares.cut(name, one).clone() for name, one in gradients.items()})
    return [
        (name, box, values.detach().float())
        for layout in shares.layouts
        for name, box, values in pieces_of(layout, weights.masters[layout.name])
    ]


def updated_each(mesh: Mesh, cases: list[tuple[str, str, bool]]) -> list[Boxes]:
    """`updated` for several cases in the same processes."""
    return [updated(mesh, *case) for case in cases]


def assembled(boxes_of_ranks: Iterable[Boxes]) -> dict[str, torch.Tensor]:
    """Join the boxes of all ranks, which have to agree where they overlap, to full tensors."""
    full = {name: torch.full_like(one, math.nan) for name, one in full_values("weights").items()}
    for name, box, values in (one for boxes in boxes_of_ranks for one in boxes):
        held = full[name][box.slices()]
        known = ~held.isnan()
        assert torch.equal(held[known], values[known]), name
        full[name][box.slices()] = values
    assert not any(one.isnan().any() for one in full.values())
    return full
