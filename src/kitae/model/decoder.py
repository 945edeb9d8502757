"""A decoder-only transformer: Llama, Mistral, Qwen2 and Qwen3 with one implementation.

B batch, S sequence, H hidden, V vocabulary. Inside, tokens are one dimension: [B S, H].
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from kitae.model.attention import OwnKernel, attention_mask
from kitae.model.blocks import Context, Layer, Parameters, RMSNorm
from kitae.model.config import DecoderConfig
from kitae.model.kernels import product_dtype
from kitae.model.layouts import decoder_layouts
from kitae.model.recompute import Recomputing
from kitae.model.rotary import inverse_frequencies, rotary_tables
from kitae.parallel.layout import LayoutTable, ParameterLayout
from kitae.parallel.region import UNCUT, Region, Vocabulary, vocabulary_of

__all__ = ["Decoder", "decoder_layouts"]


class Embedding(nn.Module):
    """Rows of a table."""

    def __init__(self, own: Parameters) -> None:
        super().__init__()
        self.weight = own["weight"]

    def forward(self, ids: torch.Tensor, vocabulary: Vocabulary) -> torch.Tensor:
        """[...] to [tokens, H], to be summed over the ranks."""
        return vocabulary.look_up(self.weight, ids.flatten())


class Decoder(Recomputing):
    """Embedding, layers and final norm; the head is applied apart, so that a loss can take it in chunks.

    Parameters are uninitialised memory: fill them with `initialise` or through a live sink. With `tied`, the
    head is the embedding, whatever the configuration says: the tensors of the checkpoint decide. The region
    says which part of every matrix this rank holds; WeightsError for a size that the heads do not divide by.
    """

    frequencies: torch.Tensor
    """fp32 [D/2]; goes where the parameters go."""
    kernel: OwnKernel | None = None
    """Attention of the device's own, which knows no documents (model.neuron_attention)."""

    def __init__(
        self,
        config: DecoderConfig,
        *,
        tied: bool,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        region: Region = UNCUT,
    ) -> None:
        super().__init__()
        self.config = config
        self.tied = tied
        self.region = region
        self.table: LayoutTable = decoder_layouts(config, tied)
        """What any rank of any cut holds."""
        self.layouts: list[ParameterLayout] = self.table(region.group.size, region.group.rank)
        """One entry a parameter, with the names and the order of `named_parameters()`."""
        self.vocabulary = vocabulary_of(self.layouts[0], region)
        """Which rows of the embedding and of the head are here."""
        own = Parameters(
            {
                one.name: nn.Parameter(torch.empty(one.shape, dtype=dtype, device=device))
                for one in self.layouts
            },
            {one.name: one for one in self.layouts},
        )
        self.embed = Embedding(own.below("embed"))
        self.layers = nn.ModuleList(
            Layer(config, own.below(f"layers.{index}"), index) for index in range(config.num_layers)
        )
        self.norm = RMSNorm(own.below("norm"), config.rms_norm_eps)
        self.head = None if tied else Embedding(own.below("head"))
        frequencies = inverse_frequencies(config.rope, config.head_dim).to(device)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        segment_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Hidden states [B, S, H] after the final norm, for ids, positions and documents [B, S].

        Every rank gives all of them; their gradient is taken to be a part from each rank, as a loss over its
        own `head_weight` makes it. RecipeError where sequence parallelism cannot share out B x S tokens.

        Without `segment_ids` a row is one document. Generating text has a forward pass of its own, over the
        same weights (generate.network).
        """
        context = self._context(input_ids, position_ids, segment_ids)
        hidden = self.region.leave(self.embed(input_ids, self.vocabulary))
        for layer in self.layers:
            hidden = self._run(layer, hidden, context)
        return self.region.enter(self.norm(hidden)).view(*input_ids.shape, -1)

    @property
    def head_weight(self) -> torch.Tensor:
        """[V, H], of which the ranks hold equal runs of rows, the last ones padded."""
        return self.embed.weight if self.head is None else self.head.weight

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[..., H] to [..., V], in the dtype of the weights; of this rank's rows only where V is cut."""
        return F.linear(hidden, self.head_weight)

    def _context(self, ids: torch.Tensor, positions: torch.Tensor, segments: torch.Tensor | None) -> Context:
        self.region.check_tokens(ids.numel())
        cosine, sine = rotary_tables(self.frequencies, positions)
        length, dtype = ids.shape[1], product_dtype(self.embed.weight)
        masks = {
            one: self.kernel or attention_mask(segments, length, one, dtype, ids.device)
            for one in set(self.config.windows)
        }
        return Context(cosine, sine, masks, self.region, recompute=self._recompute == "selective")
