"""A decoder that only computes forward: what generating and judging text need, and no more.

It has the layout table, names and arithmetic of `model.decoder`, but no autograd, no modules, and matrices
in whatever form they are kept. B rows, S new tokens, T = B S, H hidden, N query and G KV heads here, D head
size, K keys that are looked at, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from kitae.generate.cache import KVCache
from kitae.generate.matrices import Matrix, SmallProducts
from kitae.generate.weights import Weights
from kitae.model.config import DecoderConfig
from kitae.model.layouts import decoder_layouts
from kitae.model.rotary import inverse_frequencies
from kitae.parallel.region import UNCUT, Region, vocabulary_of

Tensor = torch.Tensor
FEW_QUERIES = 128
"""Up to how many queries of a row the products of attention are small."""


@dataclass(frozen=True)
class Block:
    """The weights of one layer."""

    attention_norm: Tensor
    qkv: Matrix
    qkv_bias: Tensor | None
    heads_norm: Tensor | None
    """[N + G, D]: of queries and keys, where the model has them."""
    out: Matrix
    out_bias: Tensor | None
    mlp_norm: Tensor
    gate_up: Matrix
    gate_up_bias: Tensor | None
    down: Matrix
    down_bias: Tensor | None
    window: int | None


@dataclass(frozen=True)
class Step:
    """Where the tokens of one forward pass stand, the same for all layers."""

    rows: int
    slots: Tensor
    """[S]: where in the cache they go."""
    length: int
    """K: how much of the cache is looked at."""
    masks: Mapping[int | None, Tensor]
    """By window, what is added to the scores: [B, 1, S, K], 0 or -inf."""
    cosine: Tensor
    """[T, N + 2 G, D]: ones for values, which do not turn."""
    sine: Tensor
    """The same, negative in the first half of each head."""


class Network:
    """A decoder, or one tensor-parallel rank's part of it."""

    def __init__(
        self,
        config: DecoderConfig,
        weights: Weights,
        *,
        tied: bool,
        dtype: torch.dtype,
        region: Region = UNCUT,
    ) -> None:
        self.config = config
        self.region = region
        self.dtype = dtype
        """Of hidden states and of the cache."""
        self.weights = weights
        layouts = decoder_layouts(config, tied)(region.group.size, region.group.rank)
        qkv = next(one for one in layouts if one.name.endswith("qkv.weight"))
        self.heads, self.kv_heads = (
            piece.local_shape[0] // config.head_dim for piece in (qkv.pieces[0], qkv.pieces[1])
        )
        self.norm = weights.vectors["norm.weight"]
        self.device = self.norm.device
        self.blocks = [self._block(index) for index in range(config.num_layers)]
        self.embedding = weights.matrices["embed.weight"]
        self.head = weights.matrices.get("head.weight", self.embedding)
        self.vocabulary = vocabulary_of(layouts[0], region)
        self._small_products: AbstractContextManager[None] = (
            SmallProducts() if self.device.type == "cpu" else nullcontext()
        )
        self._frequencies = inverse_frequencies(config.rope, config.head_dim).to(self.device)

    def _block(self, index: int) -> Block:
        matrices, vectors, own = self.weights.matrices, self.weights.vectors, f"layers.{index}."
        return Block(
            attention_norm=vectors[f"{own}attention_norm.weight"],
            qkv=matrices[f"{own}attention.qkv.weight"],
            qkv_bias=vectors.get(f"{own}attention.qkv.bias"),
            heads_norm=self._heads_norm(f"{own}attention."),
            out=matrices[f"{own}attention.out.weight"],
            out_bias=vectors.get(f"{own}attention.out.bias"),
            mlp_norm=vectors[f"{own}mlp_norm.weight"],
            gate_up=matrices[f"{own}mlp.gate_up.weight"],
            gate_up_bias=vectors.get(f"{own}mlp.gate_up.bias"),
            down=matrices[f"{own}mlp.down.weight"],
            down_bias=vectors.get(f"{own}mlp.down.bias"),
            window=self.config.windows[index],
        )

    def _heads_norm(self, own: str) -> Tensor | None:
        if not self.config.qk_norm:
            return None
        query, key = (self.weights.vectors[f"{own}{kind}_norm.weight"] for kind in ("q", "k"))
        return torch.cat((query.expand(self.heads, -1), key.expand(self.kv_heads, -1)))

    def cache(self, rows: int, capacity: int) -> KVCache:
        """An empty cache for so many rows and tokens."""
        shape = (rows, self.kv_heads, capacity, self.config.head_dim)
        return KVCache(shape, self.config.num_layers, self.dtype, self.device)

    def step(self, slots: Tensor, pads: Tensor, length: int) -> Step:
        """What all layers share, for tokens at `slots` [S] of rows that begin behind `pads` [B] entries.

        A token sees those before it in its row, in its window, and itself: what stands in the padding sees
        itself too, so that no score is without any value.
        """
        keys = torch.arange(length, device=self.device)
        distance = slots[:, None] - keys
        causal = (distance >= 0) & (keys >= pads[:, None, None])
        masks = {
            window: self._mask(causal if window is None else causal & (distance < window), distance)
            for window in set(self.config.windows)
        }
        turns, still = self.heads + self.kv_heads, self.kv_heads
        angles = ((slots - pads[:, None]).clamp(min=0).reshape(-1, 1, 1).float() * self._frequencies).repeat(
            1, 1, 2
        )
        sine = angles.sin()
        sine[..., : sine.shape[-1] // 2].neg_()
        ones = torch.ones_like(sine).expand(-1, still, -1)
        return Step(
            rows=len(pads),
            slots=slots,
            length=length,
            masks=masks,
            cosine=torch.cat((angles.cos().expand(-1, turns, -1), ones), 1),
            sine=torch.cat((sine.expand(-1, turns, -1), ones * 0), 1),
        )

    def _mask(self, seen: Tensor, distance: Tensor) -> Tensor:
        bias = torch.zeros(seen.shape, dtype=self.dtype, device=self.device)
        return bias.masked_fill_(~(seen | (distance == 0)), float("-inf"))[:, None]

    def hidden(self, ids: Tensor, step: Step, cache: KVCache) -> Tensor:
        """Hidden states [T, H] after the final norm, for ids [B, S], whose keys and values join the cache."""
        x = self._embedded(ids.flatten())
        views = cache.views(step.length)
        for index, block in enumerate(self.blocks):
            normed = self._normed(x, block.attention_norm)
            mixed = self._attention(normed, block, index, step, cache, views[index])
            x = self._plus(x, mixed, block.out_bias)
            gate, up = _added(block.gate_up(self._normed(x, block.mlp_norm)), block.gate_up_bias).chunk(2, -1)
            x = self._plus(x, block.down(F.silu(gate).mul_(up)), block.down_bias)
        return self._normed(x, self.norm)

    def _embedded(self, ids: Tensor) -> Tensor:
        if self.region.group.size == 1:
            return self.embedding.rows(ids, self.dtype)
        index, here = self.vocabulary.locate(ids)
        return self.region.reduce(self.embedding.rows(index, self.dtype).masked_fill(~here[:, None], 0))

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.config.rms_norm_eps)

    def _plus(self, x: Tensor, part: Tensor, bias: Tensor | None) -> Tensor:
        """The running sum with what all ranks give to it."""
        return _added(x.add_(self.region.reduce(part)), bias)

    def _attention(
        self,
        x: Tensor,
        block: Block,
        index: int,
        step: Step,
        cache: KVCache,
        views: tuple[Tensor, Tensor],
    ) -> Tensor:
        qkv = _added(block.qkv(x), block.qkv_bias).view(len(x), -1, self.config.head_dim)
        if block.heads_norm is not None:
            qkv = self._with_norms(qkv, block.heads_norm)
        turned = torch.addcmul(qkv * step.cosine, qkv.roll(self.config.head_dim // 2, -1), step.sine)
        turned = turned.to(self.dtype).view(step.rows, -1, *qkv.shape[1:])
        cache.store(index, step.slots, turned[:, :, self.heads :])
        mixed = self._mixed(turned[:, :, : self.heads], *views, step.masks[block.window])
        return block.out(mixed.reshape(len(x), -1))

    def _with_norms(self, qkv: Tensor, weight: Tensor) -> Tensor:
        turns = self.heads + self.kv_heads
        normed = F.rms_norm(qkv[:, :turns], qkv.shape[-1:], None, self.config.rms_norm_eps) * weight
        return torch.cat((normed, qkv[:, turns:]), 1)

    def _mixed(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Attention of [B, S, N, D] on [B, G, K, D]: [B, S, N, D]."""
        rows, length, heads, size = queries.shape
        with self._small_products if length <= FEW_QUERIES else nullcontext():
            if length == 1:  # the queries of one KV head are rows of one product: nothing is expanded
                q = queries.view(rows, self.kv_heads, -1, size)
                return F.scaled_dot_product_attention(q, keys, values, mask)
            grouped = heads != self.kv_heads
            q = queries.transpose(1, 2)
            return F.scaled_dot_product_attention(q, keys, values, mask, enable_gqa=grouped).transpose(1, 2)

    def logits(self, hidden: Tensor) -> Tensor:
        """[T, H] to fp32 [T, V] on every rank; the rows that pad a cut vocabulary are left out."""
        own = self.head(hidden).float()
        group = self.region.group
        if group.size == 1:
            return own
        every = group.all_gather(own).view(group.size, len(own), -1)
        return every.transpose(0, 1).reshape(len(own), -1)[:, : self.config.vocab_size]


def _added(x: Tensor, bias: Tensor | None) -> Tensor:
    return x if bias is None else x.add_(bias)
