"""What an encoder learns: masked tokens and sentence pairs, or the labels of texts.

B rows, S positions, P masked positions, H hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.nn import functional as F

from kitae.data.examples import Examples, Sample
from kitae.data.labelled_rows import LabelledRows
from kitae.data.masked_rows import MaskedRows
from kitae.model.dropout import Draws
from kitae.model.encoder import Encoder
from kitae.model.flops import encoder_train_flops_per_token
from kitae.train.batch import Tensors, tensor
from kitae.train.forms import AS_DATA_SAY, Counts, Forms, at_least_one
from kitae.train.loss import IGNORE
from kitae.train.objective import FloatArray, perplexity
from kitae.train.scores import accuracy, confusion_matrix, f1_scores, share


@dataclass(frozen=True)
class EncoderPart:
    """Rows that an encoder reads, int64 on the device."""

    samples: tuple[int, ...]
    """See `AnyMicroBatch`."""
    input_ids: torch.Tensor
    """[B, S]."""
    token_type_ids: torch.Tensor
    """[B, S]."""
    lengths: torch.Tensor
    """[B]: positions before it hold text."""
    places: torch.Tensor
    """[B], in host memory: places of the rows in the update, which dropout is keyed by."""

    def hidden(self, model: Encoder, draws: Draws | None) -> torch.Tensor:
        """Hidden states [B, S, H]."""
        hidden: torch.Tensor = model(self.input_ids, self.token_type_ids, self.lengths, draws)
        return hidden


@dataclass(frozen=True)
class MaskedPart(EncoderPart):
    """Rows with masked tokens."""

    positions: torch.Tensor
    """[B, P]."""
    labels: torch.Tensor
    """[B, P]: the tokens that stood there."""
    next_sentence: torch.Tensor
    """[B]: 1 where the second part is from elsewhere."""


def masked_tensors(
    rows: MaskedRows, samples: tuple[int, ...], place: int, device: torch.device
) -> MaskedPart:
    """Rows with masked tokens."""
    own = (tensor(one, device) for one in (rows.positions, rows.labels, rows.next_sentence))
    return MaskedPart(samples, *_of_encoder(rows, place, device), *own)


def _of_encoder(
    rows: MaskedRows | LabelledRows, place: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """What an encoder reads: ids, token types, lengths, places."""
    ids, types, lengths = (tensor(one, device) for one in (rows.input_ids, rows.token_type_ids, rows.lengths))
    return ids, types, lengths, torch.arange(place, place + len(rows.lengths))


@dataclass
class MaskedLM:
    """Masked tokens from those around them and, for pairs, whether the second part follows the first.

    The loss is the sum of two means: over masked tokens and over pairs (Devlin et al., 2018).
    """

    model: Encoder
    seed: int = 0
    chunk_tokens: int = 512
    forms: Forms = AS_DATA_SAY
    tensors: Tensors[MaskedPart] = masked_tensors
    counted: ClassVar[str] = "tokens"

    def loss(self, part: MaskedPart, counts: Counts, step: int) -> torch.Tensor:
        """See `Objective`; counts are masked tokens and pairs."""
        masked, pairs = counts
        hidden = part.hidden(self.model, Draws(self.seed, step, part.places))
        loss = self.forms.cross_entropy(
            self.model.predictions(hidden, part.positions),
            self.model.head_weight,
            part.labels.flatten(),
            bias=self.model.head_bias,
            scale=1 / at_least_one(masked),
            chunk_tokens=self.chunk_tokens,
            vocabulary=self.model.vocabulary,
        )
        if self.model.pair is None:
            return loss
        logits = self.model.pair_logits(hidden)
        return loss + F.cross_entropy(logits, part.next_sentence, reduction="sum") / at_least_one(pairs)

    def scores(self, part: MaskedPart) -> torch.Tensor:
        """Losses, masked tokens and how many are right; the same of pairs: [6, B]."""
        hidden = part.hidden(self.model, None)
        losses, right = self.forms.scores(
            self.model.predictions(hidden, part.positions),
            self.model.head_weight,
            part.labels.flatten(),
            bias=self.model.head_bias,
            chunk_tokens=self.chunk_tokens,
            vocabulary=self.model.vocabulary,
        )
        shape = part.labels.shape
        tokens = [losses.view(shape), part.labels != IGNORE, right.view(shape)]
        return torch.stack([*(self.forms.wide(one).sum(1) for one in tokens), *self._of_pairs(hidden, part)])

    def _of_pairs(self, hidden: torch.Tensor, part: MaskedPart) -> Sequence[torch.Tensor]:
        labels = part.next_sentence
        if self.model.pair is None:
            return [torch.zeros_like(self.forms.wide(labels))] * 3
        logits = self.model.pair_logits(hidden)
        losses = F.cross_entropy(logits, labels, reduction="none")
        return [self.forms.wide(one) for one in (losses, labels != IGNORE, logits.argmax(1) == labels)]

    def metrics(self, scores: FloatArray) -> dict[str, Any]:
        """Perplexity and accuracy of masked tokens and, for pairs, loss and accuracy."""
        _, masked, right, pair_loss, pairs, pairs_right = (float(one) for one in scores.sum(1))
        found = {"perplexity": perplexity(scores), "masked_accuracy": share(right, masked)}
        if pairs:
            found["next_sentence_loss"] = pair_loss / pairs
            found["next_sentence_accuracy"] = pairs_right / pairs
        return found

    def flops_per_token(self, examples: Examples[Any]) -> int:
        """See `encoder_train_flops_per_token`."""
        predictions = examples.read([Sample(0)]).positions.shape[1]
        return encoder_train_flops_per_token(self.model.config, examples.sequence_length, predictions)


@dataclass(frozen=True)
class LabelledPart(EncoderPart):
    """Rows with labels."""

    labels: torch.Tensor
    """[B]."""


def labelled_tensors(
    rows: LabelledRows, samples: tuple[int, ...], place: int, device: torch.device
) -> LabelledPart:
    """Rows with labels."""
    return LabelledPart(samples, *_of_encoder(rows, place, device), tensor(rows.labels, device))


@dataclass
class Classification:
    """The label of a text."""

    model: Encoder
    seed: int = 0
    chunk_tokens: int = 512
    """Of losses over a vocabulary, which there are none of."""
    forms: Forms = AS_DATA_SAY
    tensors: Tensors[LabelledPart] = labelled_tensors
    counted: ClassVar[str] = "texts"

    def loss(self, part: LabelledPart, counts: Counts, step: int) -> torch.Tensor:
        """See `Objective`; counts are texts."""
        draws = Draws(self.seed, step, part.places)
        logits = self.model.class_logits(part.hidden(self.model, draws), draws)
        return F.cross_entropy(logits, part.labels, reduction="sum") / at_least_one(counts[0])

    def scores(self, part: LabelledPart) -> torch.Tensor:
        """Loss, whether there is a label, predicted class and label: [4, B]."""
        logits = self.model.class_logits(part.hidden(self.model, None))
        losses = F.cross_entropy(logits, part.labels, reduction="none")
        rows = (losses, part.labels != IGNORE, logits.argmax(1), part.labels)
        return torch.stack([self.forms.wide(one) for one in rows])

    def metrics(self, scores: FloatArray) -> dict[str, Any]:
        """Accuracy, F1 and confusion matrix."""
        predicted, labels = scores[2:]
        matrix = confusion_matrix(labels, predicted, self.model.config.num_labels)
        of_classes = f1_scores(matrix)
        return {
            "accuracy": accuracy(matrix),
            "f1_macro": share(sum(of_classes), len(of_classes)),
            "f1": of_classes,
            "confusion_matrix": matrix.tolist(),
        }

    def flops_per_token(self, examples: Examples[Any]) -> int:
        """See `encoder_train_flops_per_token`."""
        return encoder_train_flops_per_token(self.model.config, examples.sequence_length)
