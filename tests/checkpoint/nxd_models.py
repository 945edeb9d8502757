"""Small models in the NxD format: configurations, full tensors of values that differ, rank files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from hypothesis import strategies as st

from kitae.checkpoint.nxd_format import NxdFormat, needed_kv_multiplier
from kitae.checkpoint.nxd_layout import nxd_layouts
from kitae.checkpoint.pipe import TensorInfo
from kitae.model.config import DecoderConfig
from kitae.model.layouts import decoder_layouts
from kitae.parallel.assembly import assemble
from kitae.parallel.layout import Box

FIXTURES = Path(__file__).parents[1] / "fixtures" / "nxd"
BASE = {
    "model_type": "llama",
    "vocab_size": 16,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}
LLAMA_8B = {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
}


def decoder_config(**changes: object) -> DecoderConfig:
    """A small Llama, with other settings of config.json where given."""
    return DecoderConfig.from_hf({**BASE, **changes})


def full_shapes(config: DecoderConfig, tied: bool = False) -> dict[str, tuple[int, ...]]:
    """The shapes of a model's Hugging Face tensors."""
    layouts = decoder_layouts(config, tied)(1, 0)
    return {piece.tensor: piece.full_shape for layout in layouts for piece in layout.pieces}


def infos(tensors: Mapping[str, torch.Tensor]) -> dict[str, TensorInfo]:
    """Shapes and dtypes of tensors."""
    return {name: TensorInfo(tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}


def numbered(config: DecoderConfig, tied: bool = False) -> dict[str, torch.Tensor]:
    """Full tensors of fp32 that have no value twice among all of them."""
    result, first = {}, 1
    for name, shape in full_shapes(config, tied).items():
        count = torch.Size(shape).numel()
        result[name] = torch.arange(first, first + count, dtype=torch.float32).view(shape)
        first += count
    return result


def rank_state(
    config: DecoderConfig,
    format: NxdFormat,
    full: Mapping[str, torch.Tensor],
    tp_rank: int,
    pp_rank: int = 0,
    *,
    tied: bool = False,
) -> dict[str, torch.Tensor]:
    """What the file of one rank holds, put together by the table."""

    def read(name: str, box: Box) -> torch.Tensor:
        return full[name][box.slices()]

    layouts = nxd_layouts(config, tied, format)(tp_rank, pp_rank)
    return {layout.name: assemble(layout, read, torch.float32) for layout in layouts}


@st.composite
def allowed(draw: st.DrawFn) -> tuple[DecoderConfig, bool, NxdFormat]:
    """A model, whether its head is tied, and a format that its rules allow."""
    tp_size = draw(st.sampled_from([1, 2, 4, 8]))
    pp_size = draw(st.integers(1, 3))
    kv_heads = draw(
        st.sampled_from([1, 2, 3, 4, 6, 8]).filter(lambda n: n % tp_size == 0 or tp_size % n == 0)
    )
    per_kv = draw(st.integers(1, 3)) * needed_kv_multiplier(kv_heads, tp_size)
    kinds = ["linear", "fused"]
    kinds += ["separate"] if kv_heads >= tp_size else []
    kinds += ["coalesced"] if kv_heads >= tp_size and per_kv == 1 else []
    qkv = draw(st.sampled_from(kinds))
    family = draw(st.sampled_from(["llama", "qwen3", *(["qwen2"] if qkv == "separate" else [])]))
    config = decoder_config(
        model_type=family,
        vocab_size=tp_size * draw(st.integers(1, 3)),
        hidden_size=draw(st.integers(1, 5)),
        intermediate_size=tp_size * draw(st.integers(1, 3)),
        num_hidden_layers=pp_size + draw(st.integers(0, 2)),
        num_attention_heads=kv_heads * per_kv,
        num_key_value_heads=kv_heads,
        head_dim=draw(st.sampled_from([2, 4])),
    )
    format = NxdFormat(
        tp_size,
        pp_size,
        needed_kv_multiplier(kv_heads, tp_size),
        draw(st.sampled_from(["trn1", "trn2"])),
        qkv,
        draw(st.booleans()),
    )
    return config, draw(st.booleans()), format
