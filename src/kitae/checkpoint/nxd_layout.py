"""The layout table of neuronx-distributed (NxD) checkpoints: what each rank's file holds, and in which order.

Keys, shapes and order are those of NxD's converter (scripts/checkpoint_converter.py, release 2.29) for a
Llama model. Where KV heads are fewer than ranks, `kv_multiplier` ranks hold each. Order `trn1` tiles the
whole K and V matrices, so that rank r holds KV head r % num_kv_heads, and permutes the query heads, and with
them the columns of o_proj, to meet it. Order `trn2` is that of NxD's own layer on Trn2: copies lie on
neighbours, query heads stay as they are. The converter, told trn2, tiles K and V all the same, so that on the
ranks queries meet the wrong KV heads: `trn2-tiled`, to read such files as what they were made from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from kitae.checkpoint.nxd_format import NxdFormat, check_allowed
from kitae.errors import WeightsError
from kitae.model.config import DecoderConfig
from kitae.parallel import cuts
from kitae.parallel.cuts import Place
from kitae.parallel.layout import ParameterLayout, Piece, Shape

__all__ = ["EMBEDDING", "HEAD", "NxdFormat", "RankTable", "nxd_layouts"]

RankTable = Callable[[int, int], list[ParameterLayout]]
"""`table(tp_rank, pp_rank)`: the tensors of one rank's file, in the order of its keys."""

HEAD = "lm_head.weight"
EMBEDDING = "model.embed_tokens.weight"
_ONE_KEY = {"fused": "qkv_proj.weight_qkv", "coalesced": "qkv_proj.weight"}
"""The key of query, key and value in one, for the kinds that have them so."""


def nxd_layouts(config: DecoderConfig, tied: bool, format: NxdFormat) -> RankTable:
    """The table of a model's NxD checkpoint; WeightsError tells the rule when the format does not allow it.

    NxD's model has a parameter for the head in any case: with `tied`, its values are the embedding's.
    """
    check_allowed(config, format)

    def table(tp_rank: int, pp_rank: int) -> list[ParameterLayout]:
        if not 0 <= pp_rank < format.pp_size:
            raise WeightsError(f"pipeline rank {pp_rank} does not exist among {format.pp_size} stages")
        return list(_Rank(config, format, tp_rank).stage(pp_rank, tied))

    return table


class _Rank:
    """What one tensor-parallel rank holds of each module."""

    def __init__(self, config: DecoderConfig, format: NxdFormat, tp_rank: int) -> None:
        self.config = config
        self.format = format
        self.place = Place(format.tp_size, tp_rank)
        copies = format.kv_multiplier
        kv_runs = format.tp_size // copies
        if format.order == "trn2":
            kv_run, copy = divmod(tp_rank, copies)
        else:
            copy, kv_run = divmod(tp_rank, kv_runs)
        self.kv_place = Place(kv_runs, kv_run)
        """Which run of KV heads it holds, among those that differ."""
        meeting = kv_run * copies + copy
        self.query_place = Place(format.tp_size, tp_rank if format.order == "trn2-tiled" else meeting)
        """Which run of query heads: those that meet its KV heads, but for the converter's slip."""

    def stage(self, pp_rank: int, tied: bool) -> Iterator[ParameterLayout]:
        """All tensors of a stage: the embedding is in the first, the norm and the head are in the last."""
        config, format = self.config, self.format
        embedding = self._column(EMBEDDING, config.vocab_size, copies=1 + tied)
        if pp_rank == 0:
            yield ParameterLayout(EMBEDDING, (embedding,))
        layers = [f"model.layers.{index}" for index in format.stage_layers(config.num_layers, pp_rank)]
        for layer in layers:
            yield from self._layer(layer)
        if pp_rank == format.pp_size - 1:
            yield self._norm("model.norm.weight", config.hidden_size)
            yield ParameterLayout(HEAD, (embedding if tied else self._column(HEAD, config.vocab_size),))
        if format.qkv in _ONE_KEY:
            # The converter makes them at the end, from parts that it then removes.
            for layer in layers:
                name = f"{layer}.self_attn.{_ONE_KEY[format.qkv]}"
                yield ParameterLayout(name, tuple(self._qkv(f"{layer}.self_attn", "weight").values()))

    def _layer(self, prefix: str) -> Iterator[ParameterLayout]:
        yield from self._attention(f"{prefix}.self_attn")
        yield from self._mlp(f"{prefix}.mlp")
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield self._norm(f"{prefix}.{name}.weight", self.config.hidden_size)

    def _attention(self, prefix: str) -> Iterator[ParameterLayout]:
        config = self.config
        if self.format.qkv not in _ONE_KEY:
            yield from self._projections(prefix)
        output = f"{prefix}.o_proj.weight"
        shape = (config.hidden_size, config.num_heads * config.head_dim)
        yield ParameterLayout(output, (cuts.head_columns(output, shape, config.num_heads, self.query_place),))
        for name in ("q_norm", "k_norm") if config.qk_norm else ():
            yield self._norm(f"{prefix}.{name}.weight", config.head_dim)

    def _projections(self, prefix: str) -> Iterator[ParameterLayout]:
        """Query, key and value, each for itself."""
        key = "qkv_proj.{kind}_{name}" if self.format.qkv == "linear" else "{name}_proj.{kind}"
        parts = {kind: self._qkv(prefix, kind) for kind in ("weight", "bias")[: 1 + self.config.qkv_bias]}
        for name in "qkv":
            for kind, pieces in parts.items():
                yield ParameterLayout(f"{prefix}.{key.format(kind=kind, name=name)}", (pieces[name],))

    def _qkv(self, prefix: str, kind: str) -> dict[str, Piece]:
        """The rank's part of q_proj, k_proj and v_proj: of their weights, or of their biases."""
        config, copies = self.config, self.format.kv_multiplier
        inputs = (config.hidden_size,) if kind == "weight" else ()

        def part(name: str, heads: int, place: Place, replicas: int) -> Piece:
            shape: Shape = (heads * config.head_dim, *inputs)
            piece = cuts.query_heads(f"{prefix}.{name}_proj.{kind}", shape, heads, place)
            return replace(piece, replicas=replicas)

        return {
            "q": part("q", config.num_heads, self.query_place, 1),
            "k": part("k", config.num_kv_heads, self.kv_place, copies),
            "v": part("v", config.num_kv_heads, self.kv_place, copies),
        }

    def _mlp(self, prefix: str) -> Iterator[ParameterLayout]:
        config = self.config
        gate, up = (
            self._column(f"{prefix}.{name}.weight", config.intermediate_size)
            for name in ("gate_proj", "up_proj")
        )
        if self.format.fused_gate_up:
            yield ParameterLayout(f"{prefix}.gate_up_proj.weight", (gate, up))
        else:
            yield from (ParameterLayout(piece.tensor, (piece,)) for piece in (gate, up))
        down = f"{prefix}.down_proj.weight"
        shape = (config.hidden_size, config.intermediate_size)
        yield ParameterLayout(down, (cuts.row(down, shape, self.place),))

    def _column(self, name: str, outputs: int, copies: int = 1) -> Piece:
        return replace(cuts.column(name, (outputs, self.config.hidden_size), self.place), replicas=copies)

    def _norm(self, name: str, size: int) -> ParameterLayout:
        piece = cuts.replicated(name, (size,), self.place)
        return ParameterLayout(name, (piece,), initial="ones", decay=False, token_wise=True)
