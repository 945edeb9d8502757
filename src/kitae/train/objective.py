"""What is learned from rows: how they are read, what their loss is, and what held-out rows show.

B rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from kitae.data.examples import Examples
from kitae.model.decoder import Decoder
from kitae.model.flops import train_flops_per_token
from kitae.train.batch import TEXT_TENSORS, MicroBatch, Tensors
from kitae.train.forms import AS_DATA_SAY, Counts, Forms, at_least_one
from kitae.train.loss import IGNORE

FloatArray = NDArray[np.float64]


class Objective(Protocol):
    """A model and what it learns."""

    counted: ClassVar[str]
    """What the loss is the mean over."""

    @property
    def model(self) -> Any:
        """Decoder or encoder."""
        ...

    @property
    def tensors(self) -> Tensors[Any]:
        """Makes a micro-batch of rows."""
        ...

    def loss(self, part: Any, counts: Counts, step: int) -> torch.Tensor:
        """A micro-batch's share of the loss of update `step`, whose parts are means over `counts`: fp32."""
        ...

    def scores(self, part: Any) -> torch.Tensor:
        """What each row shows, [K, B]: the sum of its losses in nats, their number, and more."""
        ...

    def metrics(self, scores: FloatArray) -> dict[str, Any]:
        """What the scores of many rows, [K, rows], show beside their loss."""
        ...

    def flops_per_token(self, examples: Examples[Any]) -> int:
        """Of a training on these rows, by formula."""
        ...


def perplexity(scores: FloatArray) -> float:
    """The exponential of the mean loss, which is cut at 700 so that the result is a number."""
    return math.exp(min(mean_loss(scores), 700.0))


def mean_loss(scores: FloatArray) -> float:
    """Nats for each that is counted; 0 when nothing is."""
    return float(scores[0].sum() / max(1, int(scores[1].sum())))


@dataclass
class CausalLM:
    """Each token from those before it."""

    model: Decoder
    seed: int = 0
    """Of what is drawn during the training: nothing here."""
    chunk_tokens: int = 512
    forms: Forms = AS_DATA_SAY
    counted: ClassVar[str] = "tokens"

    @property
    def tensors(self) -> Tensors[MicroBatch]:
        """See `Objective`."""
        return TEXT_TENSORS[self.forms.static]

    def loss(self, part: MicroBatch, counts: Counts, step: int) -> torch.Tensor:
        """See `Objective`."""
        hidden = self.model(part.input_ids, part.position_ids, part.segment_ids)
        return self.forms.cross_entropy(
            hidden.flatten(0, 1),
            self.model.head_weight,
            part.targets.flatten(),
            scale=1 / at_least_one(counts[0]),
            chunk_tokens=self.chunk_tokens,
            vocabulary=self.model.vocabulary,
        )

    def scores(self, part: MicroBatch) -> torch.Tensor:
        """Losses and predicted tokens, [2, B]."""
        hidden = self.model(part.input_ids, part.position_ids, part.segment_ids)
        losses, _ = self.forms.scores(
            hidden.flatten(0, 1),
            self.model.head_weight,
            part.targets.flatten(),
            chunk_tokens=self.chunk_tokens,
            vocabulary=self.model.vocabulary,
        )
        sums = self.forms.wide(losses.view_as(part.targets)).sum(1)
        return torch.stack((sums, self.forms.wide((part.targets != IGNORE).sum(1))))

    def metrics(self, scores: FloatArray) -> dict[str, Any]:
        """Perplexity: the exponential of the loss."""
        return {"perplexity": perplexity(scores)}

    def flops_per_token(self, examples: Examples[Any]) -> int:
        """See `train_flops_per_token`."""
        return train_flops_per_token(self.model.config, examples.sequence_length)
