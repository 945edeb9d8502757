"""NxD checkpoints of a tiny Llama, cut by hand as the facts about NxD's tools say, without kitae's tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from kitae.checkpoint.pipe import TensorSource
from kitae.model.config import DecoderConfig

FIXTURE = Path(__file__).parent.parent / "fixtures" / "nxd"
State = dict[str, torch.Tensor]
MARK = "1"


def fixture_config(**changes: Any) -> DecoderConfig:
    """The configuration of the fixture's Llama."""
    return DecoderConfig.from_hf({**json.loads((FIXTURE / "hf/config.json").read_text()), **changes})


def fixture_weights() -> State:
    """Its weights: 2 layers, 8 query and 2 KV heads of 4, hidden 32."""
    return load_file(FIXTURE / "hf/model.safetensors")


@dataclass(frozen=True)
class Cut:
    """How a checkpoint is cut."""

    tp: int = 4
    pp: int = 1
    multiplier: int = 2
    order: str = "trn1"
    qkv: str = "linear"
    heads: int = 8
    kv_heads: int = 2
    dim: int = 4

    def query_heads(self, rank: int) -> list[int]:
        """The converter's index rule for Trn1; in order for Trn2."""
        each = self.heads // self.tp
        if self.order != "trn1" or self.multiplier == 1:
            return list(range(rank * each, (rank + 1) * each))
        group = self.heads // self.kv_heads
        return [(rank % self.kv_heads) * group + (rank // self.kv_heads) * each + j for j in range(each)]

    def query(self, weight: torch.Tensor, rank: int, dim: int) -> torch.Tensor:
        """Rows of q_proj, columns of o_proj."""
        return torch.cat([weight.narrow(dim, h * self.dim, self.dim) for h in self.query_heads(rank)], dim)

    def key(self, weight: torch.Tensor, rank: int) -> torch.Tensor:
        """The whole matrix tiled, but for `trn2`: each head repeated beside itself; then equal shares."""
        by_head = weight.reshape(self.kv_heads, self.dim, -1)
        if self.order == "trn2":
            copies = by_head.repeat_interleave(self.multiplier, 0)
        else:
            copies = torch.cat([by_head] * self.multiplier)
        return copies.reshape(-1, weight.shape[1]).chunk(self.tp)[rank]


def cut_layer(cut: Cut, full: Mapping[str, torch.Tensor], prefix: str, rank: int) -> State:
    """One layer's tensors of a rank."""
    attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
    q = cut.query(full[f"{attention}.q_proj.weight"], rank, 0)
    k, v = (cut.key(full[f"{attention}.{kind}_proj.weight"], rank) for kind in "kv")
    kinds = {
        "separate": {"q_proj.weight": q, "k_proj.weight": k, "v_proj.weight": v},
        "linear": {"qkv_proj.weight_q": q, "qkv_proj.weight_k": k, "qkv_proj.weight_v": v},
        "fused": {"qkv_proj.weight_qkv": torch.cat([q, k, v])},
        "coalesced": {"qkv_proj.weight": torch.cat([q, k, v])},
    }
    halves = [full[f"{mlp}.{kind}_proj.weight"].chunk(cut.tp)[rank] for kind in ("gate", "up")]
    return {
        **{f"{attention}.{key}": tensor for key, tensor in kinds[cut.qkv].items()},
        f"{attention}.o_proj.weight": cut.query(full[f"{attention}.o_proj.weight"], rank, 1),
        f"{mlp}.gate_up_proj.weight": torch.cat(halves),
        f"{mlp}.down_proj.weight": full[f"{mlp}.down_proj.weight"].chunk(cut.tp, 1)[rank],
        **{
            f"{prefix}.{n}.weight": full[f"{prefix}.{n}.weight"]
            for n in ("input_layernorm", "post_attention_layernorm")
        },
    }


def cut_rank(cut: Cut, full: Mapping[str, torch.Tensor], rank: int, stage: int = 0) -> State:
    """What a rank's file holds, in the order of NxD's modules."""
    layers = len({name.split(".")[2] for name in full if name.startswith("model.layers.")})
    each = layers // cut.pp
    state: State = {}
    if stage == 0:
        state["model.embed_tokens.weight"] = full["model.embed_tokens.weight"].chunk(cut.tp)[rank]
    for index in range(stage * each, (stage + 1) * each):
        state |= cut_layer(cut, full, f"model.layers.{index}", rank)
    if stage == cut.pp - 1:
        state["model.norm.weight"] = full["model.norm.weight"]
        if "lm_head.weight" in full:
            state["lm_head.weight"] = full["lm_head.weight"].chunk(cut.tp)[rank]
    return {key: tensor.clone() for key, tensor in state.items()}


def rank_name(tp: int, pp: int = 0, dp: int = 0) -> str:
    """A rank's file."""
    return f"dp_rank_{dp:02d}_tp_rank_{tp:02d}_pp_rank_{pp:02d}.pt"


def write(folder: Path, cut: Cut, full: Mapping[str, torch.Tensor], *, form: str = "dp_rank_00_") -> Path:
    """A converter's output; `form` is how its files are named."""
    for tp in range(cut.tp):
        for pp in range(cut.pp):
            name = f"tp_rank_{tp:02d}_pp_rank_{pp:02d}"
            path = folder / "model" / (f"{name}/checkpoint.pt" if form == "folder" else f"{form}{name}.pt")
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save(cut_rank(cut, full, tp, pp), path)
    return folder


def mark(tag: Path, *, done: bool = True) -> Path:
    """Mark a tag as NxD does when it begins and ends to save."""
    (tag / "checkpoint").write_text(MARK)
    if done:
        (tag / "done").write_text(MARK)
    return tag


def change(path: Path, **tensors: torch.Tensor | None) -> None:
    """Replace tensors in a rank's file by the end of their key; None takes one out."""
    state = torch.load(path)
    for end, tensor in tensors.items():
        key = next((key for key in state if key.endswith(end)), end)
        state.pop(key) if tensor is None else state.update({key: tensor})
    torch.save(state, path)


def everything(source: TensorSource) -> State:
    """All tensors, whole."""
    return {name: source.read(name) for name in source.tensors()}
