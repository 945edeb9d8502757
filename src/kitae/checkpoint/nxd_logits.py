"""Logits as the ranks of neuronx-distributed (NxD) compute them together, each from its own files.

Each rank attends with the heads that it holds, in the order in which it holds them, and the ranks' parts of
o_proj and down_proj are summed. That needs no table of which head lies where, and so it proves such a table:
where heads were taken for others, the full model gives other logits than the ranks together.

B prompts, S positions, H hidden, N query heads and G KV heads of a rank, D head size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch.nn import functional as F

from kitae.checkpoint.layerwise import MULTIPLIED_BYTES
from kitae.checkpoint.nxd import NxdSource
from kitae.checkpoint.nxd_layout import EMBEDDING, HEAD
from kitae.checkpoint.pipe import blocks
from kitae.model.config import DecoderConfig
from kitae.model.rotary import inverse_frequencies, rotary_tables
from kitae.parallel.layout import Box, Shape


class _Files:
    """All tensors of one tensor-parallel rank, of all its stages."""

    def __init__(self, source: NxdSource, tp: int, dtype: torch.dtype | None) -> None:
        states = (state for rank, state in source.states.items() if rank.tp == tp)
        self._stored = {key: stored for state in states for key, stored in state.items()}
        self._dtype = dtype

    def __contains__(self, key: str) -> bool:
        return key in self._stored

    def shape(self, key: str) -> Shape:
        """Shape of a tensor."""
        return self._stored[key].shape

    def read(self, key: str, box: Box | None = None) -> torch.Tensor:
        """A tensor, or a box of it, in fp32."""
        values = self._stored[key].read(box)
        return values.to(self._dtype or values.dtype).float()

    def linear(self, x: torch.Tensor, key: str, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Give x W^T + b, with a few rows of W at a time."""
        result = x.new_empty(*x.shape[:-1], self.shape(key)[0])
        self.multiply(x, key, result)
        return result if bias is None else result + bias

    def multiply(self, x: torch.Tensor, key: str, result: torch.Tensor) -> None:
        """Put x W^T into its place."""
        for start, rows in self.runs(key):
            result[..., start : start + len(rows)] = F.linear(x, rows)

    def runs(self, key: str) -> Iterator[tuple[int, torch.Tensor]]:
        """A tensor in runs of rows: the first row's number, and the rows."""
        for box in blocks(self._stored[key].info, MULTIPLIED_BYTES):
            yield box.start[0], self.read(key, box)


_Part = Callable[[_Files, torch.Tensor], torch.Tensor]
"""What one rank adds to the running sum [B, S, H]."""


def nxd_logits(
    config: DecoderConfig,
    source: NxdSource,
    dtype: torch.dtype | None,
    ids: torch.Tensor,
    positions: torch.Tensor,
) -> torch.Tensor:
    """fp32 logits [B, S, V] for ids and positions [B, S]; a part of one tensor in memory at a time.

    With `dtype`, of weights that are rounded to it.
    """
    ranks = [_Files(source, tp, dtype) for tp in range(source.format.tp_size)]
    with torch.inference_mode():
        hidden = _embedded(ranks, ids)
        for index in range(config.num_layers):
            layer = _Layer(config, index, positions)
            hidden = hidden + layer.sum_over(ranks, layer.attention, hidden)
            hidden = hidden + layer.sum_over(ranks, layer.mlp, hidden)
        hidden = _norm(hidden, ranks[0], "model.norm.weight", config)
        return _head(ranks, hidden, config.vocab_size)


def _embedded(ranks: Sequence[_Files], ids: torch.Tensor) -> torch.Tensor:
    """Rows of the vocabulary, of which each rank holds a run."""
    rows, width = ranks[0].shape(EMBEDDING)
    result = torch.zeros(*ids.shape, width)
    for rank, files in enumerate(ranks):
        for start, values in files.runs(EMBEDDING):
            own = ids - (rank * rows + start)
            here = (own >= 0) & (own < len(values))
            result[here] = values[own[here]]
    return result


def _head(ranks: Sequence[_Files], hidden: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Logits of all ranks; the embedding is the head where there is no other."""
    # Each rank's own result would lie between blocks, whose memory could not be used again.
    result = hidden.new_empty(*hidden.shape[:-1], vocab_size)
    for files, own in zip(ranks, result.chunk(len(ranks), -1), strict=True):
        files.multiply(hidden, HEAD if HEAD in files else EMBEDDING, own)
    return result


def _norm(x: torch.Tensor, files: _Files, key: str, config: DecoderConfig) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], files.read(key), config.rms_norm_eps)


class _Layer:
    """One layer on any of the ranks."""

    def __init__(self, config: DecoderConfig, index: int, positions: torch.Tensor) -> None:
        self._config, self._prefix = config, f"model.layers.{index}."
        self._tables = rotary_tables(inverse_frequencies(config.rope, config.head_dim), positions)
        row = torch.arange(positions.shape[1])
        window = config.windows[index]
        behind = row[:, None] - row[None]
        self._seen = (behind >= 0) & (behind < (window or len(row)))

    def sum_over(self, ranks: Sequence[_Files], part: _Part, x: torch.Tensor) -> torch.Tensor:
        """What all ranks add to the running sum."""
        # Each rank scales with its own copy of the norm's weight.
        normed = F.rms_norm(x, x.shape[-1:], eps=self._config.rms_norm_eps)
        return sum((part(files, normed) for files in ranks), torch.zeros_like(x))

    def attention(self, files: _Files, x: torch.Tensor) -> torch.Tensor:
        """One rank's part of a layer's sum, for x that is normed but not scaled: [B, S, H] to [B, S, H]."""
        config, prefix = self._config, f"{self._prefix}self_attn."
        x = x * files.read(f"{self._prefix}input_layernorm.weight")
        q, k, v = (one.view(*x.shape[:2], -1, config.head_dim) for one in self._qkv(files, prefix, x))
        if config.qk_norm:
            q, k = (
                _norm(one, files, f"{prefix}{name}_norm.weight", config) for one, name in ((q, "q"), (k, "k"))
            )
        q, k = self._rotated(q), self._rotated(k)
        # The rank's query heads share its KV heads in equal runs.
        k, v = (one.repeat_interleave(q.shape[2] // one.shape[2], 2) for one in (k, v))
        scores = torch.einsum("bsnd,btnd->bnst", q, k) * config.head_dim**-0.5
        weights = scores.masked_fill(~self._seen, float("-inf")).softmax(-1)
        mixed = torch.einsum("bnst,btnd->bsnd", weights, v).flatten(2)
        return files.linear(mixed, f"{prefix}o_proj.weight")

    def mlp(self, files: _Files, x: torch.Tensor) -> torch.Tensor:
        """Likewise, of the MLP."""
        prefix = f"{self._prefix}mlp."
        x = x * files.read(f"{self._prefix}post_attention_layernorm.weight")
        both = f"{prefix}gate_up_proj.weight"
        if both in files:
            gate, up = files.linear(x, both).chunk(2, -1)
        else:
            gate, up = (files.linear(x, f"{prefix}{name}_proj.weight") for name in ("gate", "up"))
        return files.linear(F.silu(gate) * up, f"{prefix}down_proj.weight")

    def _qkv(self, files: _Files, prefix: str, x: torch.Tensor) -> Sequence[torch.Tensor]:
        """The rank's query, key and value [B, S, heads x D], wherever it keeps them."""
        for one in ("weight_qkv", "weight"):
            key = f"{prefix}qkv_proj.{one}"
            if key in files:
                return self._split(files.linear(x, key), files, prefix)
        if f"{prefix}q_proj.weight" not in files:
            return [files.linear(x, f"{prefix}qkv_proj.weight_{name}") for name in "qkv"]
        return [
            files.linear(x, f"{prefix}{name}_proj.weight", files.read(bias) if bias in files else None)
            for name in "qkv"
            for bias in (f"{prefix}{name}_proj.bias",)
        ]

    def _split(self, fused: torch.Tensor, files: _Files, prefix: str) -> Sequence[torch.Tensor]:
        """Query rows are as many as o_proj has columns; key and value share the rest."""
        query = files.shape(f"{prefix}o_proj.weight")[1]
        rest = (fused.shape[-1] - query) // 2
        return fused.split_with_sizes((query, rest, rest), -1)

    def _rotated(self, x: torch.Tensor) -> torch.Tensor:
        """Half-split rotary positions, on [B, S, heads, D]."""
        cosine, sine = self._tables
        first, second = x.chunk(2, -1)
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)
