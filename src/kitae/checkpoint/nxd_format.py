"""What tells one neuronx-distributed (NxD) checkpoint of a model from another, and what is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from kitae.errors import WeightsError
from kitae.model.config import DecoderConfig

Order = Literal["trn1", "trn2", "trn2-tiled"]
QkvKind = Literal["separate", "linear", "fused", "coalesced"]
_WITH_COPIES: tuple[QkvKind, ...] = ("linear", "fused")


@dataclass(frozen=True)
class NxdFormat:
    """The choices of an NxD checkpoint; WeightsError when they can be those of no model."""

    tp_size: int
    pp_size: int = 1
    kv_multiplier: int = 1
    """How many ranks hold each KV head."""
    order: Order = "trn1"
    """On which ranks query heads and copies of KV heads lie; without copies all orders are the same.
    trn2-tiled is what NxD's converter writes for trn2, and what no model of NxD computes right with."""
    qkv: QkvKind = "linear"
    """separate: q_proj, k_proj and v_proj. linear: qkv_proj.weight_q, weight_k and weight_v. fused: the three
    in one, qkv_proj.weight_qkv. coalesced: likewise, qkv_proj.weight, where each query head has a KV head."""
    fused_gate_up: bool = True
    """Whether mlp.gate_up_proj.weight holds the rank's rows of gate and then those of up."""

    def __post_init__(self) -> None:
        sizes = {"tp_size": self.tp_size, "pp_size": self.pp_size, "kv_multiplier": self.kv_multiplier}
        for name, size in sizes.items():
            _require(size >= 1, f"{name}: {size} where a whole number above 0 is needed")
        _require(self.order in get_args(Order), f"order: {self.order!r} is none of {get_args(Order)}")
        _require(self.qkv in get_args(QkvKind), f"qkv: {self.qkv!r} is none of {get_args(QkvKind)}")

    def stage_layers(self, num_layers: int, pp_rank: int) -> range:
        """The layers of a pipeline stage: equally many, but that the last stages have those left over."""
        size, left = divmod(num_layers, self.pp_size)
        first_longer = self.pp_size - left
        start = pp_rank * size + max(0, pp_rank - first_longer)
        return range(start, start + size + (pp_rank >= first_longer))


def rank_file(tp_rank: int, pp_rank: int, dp_rank: int = 0) -> str:
    """Name of a rank's file; model weights are all in those of data-parallel rank 0."""
    return f"dp_rank_{dp_rank:02d}_tp_rank_{tp_rank:02d}_pp_rank_{pp_rank:02d}.pt"


def needed_kv_multiplier(num_kv_heads: int, tp_size: int) -> int:
    """How many copies of each KV head give every rank one; 1 where there are enough without."""
    return max(1, tp_size // num_kv_heads)


def check_allowed(config: DecoderConfig, format: NxdFormat) -> None:
    """Raise WeightsError with the rule that the model breaks in this format."""
    for rule in (_heads, _kv_heads, _multiplier, _sizes, _stages, _parameters):
        rule(config, format)


def _heads(config: DecoderConfig, format: NxdFormat) -> None:
    _require(
        config.num_heads % format.tp_size == 0,
        f"each rank holds whole query heads: {config.num_heads} do not divide by tp_size {format.tp_size}; "
        f"choose a tp_size that divides {config.num_heads}",
    )


def _kv_heads(config: DecoderConfig, format: NxdFormat) -> None:
    kv_heads, tp_size = config.num_kv_heads, format.tp_size
    _require(
        kv_heads % tp_size == 0 or tp_size % kv_heads == 0,
        f"each rank holds whole KV heads: {kv_heads} do not spread over tp_size {tp_size}; "
        f"choose a tp_size that divides, or is a multiple of, {kv_heads}",
    )
    _require(
        kv_heads >= tp_size or format.qkv in _WITH_COPIES,
        f"only qkv {' and '.join(_WITH_COPIES)} can have KV heads on several ranks: {kv_heads} KV heads are "
        f"too few for tp_size {tp_size} with qkv {format.qkv}; choose one of those",
    )
    _require(
        format.qkv != "coalesced" or kv_heads == config.num_heads,
        f"qkv coalesced needs as many KV heads as query heads: there are {kv_heads} and {config.num_heads}; "
        f"choose {' or '.join(_WITH_COPIES)}",
    )


def _multiplier(config: DecoderConfig, format: NxdFormat) -> None:
    due = needed_kv_multiplier(config.num_kv_heads, format.tp_size)
    _require(
        format.kv_multiplier == due,
        "KV heads x kv_multiplier is tp_size, or kv_multiplier is 1 where tp_size divides the KV heads: "
        f"{config.num_kv_heads} x {format.kv_multiplier} with tp_size {format.tp_size} is neither; "
        f"choose kv_multiplier {due}",
    )


def _sizes(config: DecoderConfig, format: NxdFormat) -> None:
    for name, size in (("vocab_size", config.vocab_size), ("intermediate_size", config.intermediate_size)):
        _require(
            size % format.tp_size == 0,
            f"NxD does not pad: {name} {size} does not divide by tp_size {format.tp_size}; "
            f"choose a tp_size that divides {size}",
        )


def _stages(config: DecoderConfig, format: NxdFormat) -> None:
    _require(
        format.pp_size <= config.num_layers,
        f"each pipeline stage has a layer: {config.num_layers} are too few for pp_size {format.pp_size}; "
        "choose a smaller one",
    )


def _parameters(config: DecoderConfig, format: NxdFormat) -> None:
    _require(
        not config.qkv_bias or format.qkv == "separate",
        f"biases of q, k and v have a place in qkv separate only, not in {format.qkv}",
    )
    _require(
        not (config.out_bias or config.mlp_bias),
        "there is no place for the biases of o_proj and the MLP: NxD's Llama has none",
    )


def _require(met: bool, rule: str) -> None:
    if not met:
        raise WeightsError(f"the NxD format does not allow it: {rule}")
