"""A bidirectional transformer: BERT, with its heads for pre-training and for classification.

B batch, S sequence, P predictions a row, H hidden, V vocabulary, C classes. Inside, tokens are one dimension:
[B S, H].
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from kitae.model.blocks import Linear, Parameters
from kitae.model.decoder import Embedding
from kitae.model.dropout import Draws, drop
from kitae.model.encoder_attention import visible
from kitae.model.encoder_blocks import Context, EncoderLayer, LayerNorm, keep_of_pooled, site_of
from kitae.model.encoder_config import EncoderConfig
from kitae.model.encoder_layouts import encoder_layouts
from kitae.model.recompute import Recomputing
from kitae.parallel.layout import LayoutTable, ParameterLayout
from kitae.parallel.region import UNCUT, WHOLE_VOCABULARY, Region, Vocabulary, vocabulary_of

__all__ = ["Encoder", "encoder_layouts"]

_EMBEDDINGS = 0
"""The site of dropout after the embeddings."""


class Embeddings(nn.Module):
    """Words, positions and token types, added and normed."""

    def __init__(self, own: Parameters, eps: float) -> None:
        super().__init__()
        self.words = Embedding(own.below("words"))
        self.positions = Embedding(own.below("positions"))
        self.types = Embedding(own.below("types"))
        self.norm = LayerNorm(own.below("norm"), eps)

    def forward(
        self, ids: torch.Tensor, types: torch.Tensor, region: Region, vocabulary: Vocabulary
    ) -> torch.Tensor:
        """[B, S] each to token-wise [t, H]."""
        words = region.leave(self.words(ids, vocabulary))
        positions = torch.arange(ids.shape[1], device=ids.device).repeat(len(ids))
        added = self.types(region.own(types.flatten()), WHOLE_VOCABULARY)
        added = added + self.positions(region.own(positions), WHOLE_VOCABULARY)
        return self.norm(words + added)  # type: ignore[no-any-return]


class Transform(nn.Module):
    """norm(gelu(dense(x))): what comes before the head over the vocabulary."""

    def __init__(self, own: Parameters, eps: float) -> None:
        super().__init__()
        self.dense = Linear(own.below("dense"))
        self.norm = LayerNorm(own.below("norm"), eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., H] to the same."""
        return self.norm(F.gelu(F.linear(x, self.dense.weight, self.dense.bias)))  # type: ignore[no-any-return]


class VocabularyHead(nn.Module):
    """The bias of the head over the vocabulary, whose weight is the embedding."""

    def __init__(self, own: Parameters) -> None:
        super().__init__()
        self.bias = own["bias"]


class Encoder(Recomputing):
    """Embeddings and layers; the heads are applied apart.

    Parameters are uninitialised memory: fill them with `initialise` or through a live sink. The head over the
    vocabulary is the embedding. The region says which part of every matrix this rank holds; WeightsError for
    a size that the heads do not divide by.
    """

    def __init__(
        self,
        config: EncoderConfig,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        region: Region = UNCUT,
    ) -> None:
        super().__init__()
        self.config = config
        self.region = region
        self.table: LayoutTable = encoder_layouts(config)
        """Of every rank."""
        self.layouts: list[ParameterLayout] = self.table(region.group.size, region.group.rank)
        """One entry a parameter, with the names and the order of `named_parameters()`."""
        self.vocabulary = vocabulary_of(self.layouts[0], region)
        """Which rows of the embedding and of the head over the vocabulary are here."""
        own = Parameters(
            {
                one.name: nn.Parameter(torch.empty(one.shape, dtype=dtype, device=device))
                for one in self.layouts
            },
            {one.name: one for one in self.layouts},
        )
        self.embed = Embeddings(own.below("embed"), config.layer_norm_eps)
        self.layers = nn.ModuleList(
            EncoderLayer(config, own.below(f"layers.{index}"), index) for index in range(config.num_layers)
        )
        self._add_heads(own)

    def _add_heads(self, own: Parameters) -> None:
        config = self.config
        self.pooler = Linear(own.below("pooler")) if config.pooler else None
        self.transform = (
            Transform(own.below("transform"), config.layer_norm_eps) if config.predicts_tokens else None
        )
        self.head = VocabularyHead(own.below("head")) if config.predicts_tokens else None
        self.pair = Linear(own.below("pair")) if config.head == "pretraining" else None
        self.classifier = Linear(own.below("classifier")) if config.head == "classification" else None

    def forward(
        self,
        input_ids: torch.Tensor,
        token_type_ids: torch.Tensor,
        lengths: torch.Tensor,
        draws: Draws | None = None,
    ) -> torch.Tensor:
        """Hidden states [B, S, H] for ids and token types [B, S] of rows with `lengths` [B] real tokens.

        Every rank gives all of them; their gradient is taken to be a part from each rank, as a loss over its
        own `head_weight` makes it. What stands at padding is finite and means nothing, also in a row of
        length 0. Nothing is dropped without `draws`. RecipeError where a row is longer than the positions
        that the model has, and where sequence parallelism cannot share out B x S tokens.
        """
        self._check(input_ids)
        keys = self._keys(draws)
        context = Context(
            self.config,
            (input_ids.shape[0], input_ids.shape[1]),
            visible(lengths, input_ids.shape[1]),
            self.region,
            keys,
            self._recompute == "selective",
        )
        hidden = self.embed(input_ids, token_type_ids, self.region, self.vocabulary)
        hidden = drop(hidden, context.of_tokens(_EMBEDDINGS), context.recompute)
        for layer in self.layers:
            hidden = self._run(layer, hidden, context)
        return self.region.enter(hidden).view(*input_ids.shape, -1)

    @property
    def head_weight(self) -> torch.Tensor:
        """[V, H], of which the ranks hold equal runs of rows, the last ones padded."""
        return self.embed.words.weight

    @property
    def head_bias(self) -> torch.Tensor:
        """[V], cut as `head_weight`."""
        assert self.head is not None, "the model has no head over the vocabulary"
        return self.head.bias

    def predictions(self, hidden: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """What the head over the vocabulary takes at `positions` [B, P]: [B P, H] of [B, S, H]."""
        assert self.transform is not None, "the model has no head over the vocabulary"
        index = positions[..., None].expand(-1, -1, hidden.shape[-1])
        return self.transform(hidden.gather(1, index).flatten(0, 1))  # type: ignore[no-any-return]

    def token_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Of the vocabulary for every token, [B, S, V] of [B, S, H]; this rank's rows only where V is cut."""
        assert self.transform is not None, "the model has no head over the vocabulary"
        return F.linear(self.transform(hidden), self.head_weight, self.head_bias)

    def pooled(self, hidden: torch.Tensor) -> torch.Tensor:
        """tanh(dense(x)) of each row's first token: [B, H] of [B, S, H]."""
        assert self.pooler is not None, "the model has no pooler"
        return F.linear(hidden[:, 0], self.pooler.weight, self.pooler.bias).tanh()

    def pair_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Whether the second segment is the next one (0) or a random one (1): fp32 [B, 2] of [B, S, H].

        Every rank gives them, and a loss on every rank counts once.
        """
        assert self.pair is not None, "the model has no head for sentence pairs"
        return self._row_logits(self.pair, self.pooled(hidden))

    def class_logits(self, hidden: torch.Tensor, draws: Draws | None = None) -> torch.Tensor:
        """Logits of the classes, fp32 [B, C] of [B, S, H]; `draws` as in `forward`.

        Every rank gives them, and a loss on every rank counts once.
        """
        assert self.classifier is not None, "the model has no classifier"
        keys = self._keys(draws)
        keep = keep_of_pooled(None if keys is None else keys[-1], self.config)
        return self._row_logits(self.classifier, drop(self.pooled(hidden), keep))

    def _row_logits(self, linear: Linear, pooled: torch.Tensor) -> torch.Tensor:
        return self.region.once(F.linear(pooled, linear.weight, linear.bias).float())

    def _keys(self, draws: Draws | None) -> torch.Tensor | None:
        """Of all sites: the embeddings, three in each layer, the classifier."""
        sites = site_of(self.config.num_layers, 0) + 1
        return None if draws is None else draws.keys(sites, self.embed.words.weight.device)

    def _check(self, ids: torch.Tensor) -> None:
        self.config.check_length(ids.shape[1])
        self.region.check_tokens(ids.numel())
