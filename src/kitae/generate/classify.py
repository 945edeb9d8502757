"""The classes of texts, in batches of similar lengths. B batch, S sequence, C classes, N texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kitae.model.encoder import Encoder

LENGTH_STEP = 16
"""Batches are padded up to a multiple of this many tokens, so that there are few shapes."""


@dataclass(frozen=True)
class TextRow:
    """A text as the model reads it."""

    ids: Sequence[int]
    """With the special tokens around the text."""
    first: int
    """How many of them are of the first text and what frames it."""


@torch.inference_mode()
def class_probabilities(model: Encoder, rows: Sequence[TextRow], batch_size: int) -> torch.Tensor:
    """The share of each class, fp32 [N, C] on the CPU, in the order of the rows."""
    found = torch.zeros(len(rows), model.config.num_labels)
    for places in _batches(rows, batch_size):
        ids, types, lengths = _tensors([rows[place] for place in places], model)
        logits = model.class_logits(model(ids, types, lengths))
        found[places] = logits.softmax(-1).cpu()
    return found


def _batches(rows: Sequence[TextRow], size: int) -> Iterator[list[int]]:
    """Places of rows, the longest first, so that little is padding and too large a batch fails at once."""
    order = sorted(range(len(rows)), key=lambda place: -len(rows[place].ids))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _tensors(rows: Sequence[TextRow], model: Encoder) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids and token types [B, S] and lengths [B] on the model's device."""
    longest = max(len(row.ids) for row in rows)
    length = min(-(-longest // LENGTH_STEP) * LENGTH_STEP, model.config.max_position_embeddings)
    ids = np.zeros((len(rows), length), np.int64)
    types = np.zeros_like(ids)
    for place, row in enumerate(rows):
        ids[place, : len(row.ids)] = row.ids
        types[place, row.first : len(row.ids)] = 1
    lengths = np.array([len(row.ids) for row in rows], np.int64)
    device = model.head_weight.device
    ready = [torch.from_numpy(array).to(device) for array in (ids, types, lengths)]
    return ready[0], ready[1], ready[2]
