"""A decoder-only transformer: Llama, Mistral, Qwen2 and Qwen3 with one implementation.

B batch, S sequence, H hidden, V vocabulary.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from kitae.model.attention import attention_mask
from kitae.model.blocks import Context, Layer, Parameters, RMSNorm
from kitae.model.cache import KVCache
from kitae.model.config import DecoderConfig
from kitae.model.layouts import decoder_layouts
from kitae.model.rotary import inverse_frequencies, rotary_tables
from kitae.parallel.layout import ParameterLayout

__all__ = ["Decoder", "Recompute", "decoder_layouts"]

Recompute = Literal["none", "selective", "full"]


class Embedding(nn.Module):
    """Rows of a table."""

    def __init__(self, own: Parameters) -> None:
        super().__init__()
        self.weight = own["weight"]

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """[B, S] to [B, S, H]."""
        return F.embedding(ids, self.weight)


class Decoder(nn.Module):
    """Embedding, layers and final norm; the head is applied apart, so that a loss can take it in chunks.

    Parameters are uninitialised memory: fill them with `initialise` or through a live sink. With `tied`, the
    head is the embedding, whatever the configuration says: the tensors of the checkpoint decide.
    """

    frequencies: torch.Tensor
    """fp32 [D/2]; goes where the parameters go."""

    def __init__(
        self,
        config: DecoderConfig,
        *,
        tied: bool,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        self.config = config
        self.tied = tied
        self.layouts: list[ParameterLayout] = decoder_layouts(config, tied)(1, 0)
        """One entry a parameter, with the names and the order of `named_parameters()`."""
        own = Parameters(
            {
                one.name: nn.Parameter(torch.empty(one.shape, dtype=dtype, device=device))
                for one in self.layouts
            }
        )
        self.embed = Embedding(own.below("embed"))
        self.layers = nn.ModuleList(
            Layer(config, own.below(f"layers.{index}"), index) for index in range(config.num_layers)
        )
        self.norm = RMSNorm(own.below("norm"), config.rms_norm_eps)
        self.head = None if tied else Embedding(own.below("head"))
        frequencies = inverse_frequencies(config.rope, config.head_dim).to(device)
        self.register_buffer("frequencies", frequencies, persistent=False)
        self._recompute: Recompute = "none"

    @property
    def recompute(self) -> Recompute:
        """What the backward pass computes again instead of keeping it."""
        return self._recompute

    @recompute.setter
    def recompute(self, mode: Recompute) -> None:
        assert mode in get_args(Recompute), mode
        self._recompute = mode

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        segment_ids: torch.Tensor | None = None,
        cache: KVCache | None = None,
    ) -> torch.Tensor:
        """Hidden states [B, S, H] after the final norm, for ids, positions and documents [B, S].

        Without `segment_ids` a row is one document. With a cache, which takes no segments, the tokens follow
        those in it and are added to it.
        """
        context = self._context(input_ids, position_ids, segment_ids, cache)
        hidden = self.embed(input_ids)
        for layer in self.layers:
            hidden = self._run(layer, hidden, context)
        if cache is not None:
            cache.length += input_ids.shape[1]
        return self.norm(hidden)  # type: ignore[no-any-return]

    @property
    def head_weight(self) -> torch.Tensor:
        """[V, H]."""
        return self.embed.weight if self.head is None else self.head.weight

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[..., H] to [..., V], in the dtype of the weights."""
        return F.linear(hidden, self.head_weight)

    def _run(self, layer: nn.Module, hidden: torch.Tensor, context: Context) -> torch.Tensor:
        if self._recompute == "full":
            return checkpoint(layer, hidden, context, use_reentrant=False)  # type: ignore[no-any-return]
        return layer(hidden, context)  # type: ignore[no-any-return]

    def _context(
        self, ids: torch.Tensor, positions: torch.Tensor, segments: torch.Tensor | None, cache: KVCache | None
    ) -> Context:
        cosine, sine = rotary_tables(self.frequencies, positions)
        windows = set(self.config.windows)
        if cache is None:
            length, dtype = ids.shape[1], self.embed.weight.dtype
            masks = {one: attention_mask(segments, length, one, dtype, ids.device) for one in windows}
            return Context(cosine, sine, masks, recompute=self._recompute == "selective")
        slots = cache.slots(ids.shape[1])
        return Context(cosine, sine, {one: cache.mask(slots, one) for one in windows}, cache, slots)
