"""Small trainings that need no download: models, rows made by formula, and the jobs that train on them.

Everything is arithmetic on whole numbers, so that every machine has the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kitae.backend.base import Backend
from kitae.checkpoint.store import CheckpointStore
from kitae.data.examples import Examples, Sample
from kitae.data.masked_rows import MaskedRows
from kitae.data.rows import IGNORED, IntArray, Rows, build_rows
from kitae.model.config import DecoderConfig
from kitae.model.decoder import Decoder
from kitae.model.encoder import Encoder
from kitae.model.encoder_config import EncoderConfig
from kitae.model.init import initialise
from kitae.recipe.resolve import resolve
from kitae.recipe.schema import Recipe
from kitae.train.job import Phase, TrainJob

VOCABULARY = 256
STEPS = 12
_BATCH = 8
_TRAIN_ROWS, _HELDOUT_ROWS = 64, 10
_FIRST_ID = 5
_MASK_ID = 4
_PREDICTIONS = 8
_DECODER = {
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}
_ENCODER = {
    "model_type": "bert",
    "architectures": ["BertForPreTraining"],
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
_DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


def _mixed(values: IntArray) -> IntArray:
    """Numbers that look drawn, from whole numbers: a multiplicative hash of 31 bits."""
    words = (values * 2654435761 + 12345) % (1 << 31)
    return ((words ^ (words >> 13)) * 1103515245 % (1 << 31)) >> 8


def _text(number: int, length: int, offset: int) -> IntArray:
    """A row of tokens of which most follow from the one before."""
    places = np.arange(length, dtype=np.int64) + 1000 * number + offset
    noise = _mixed(places)
    ids = np.zeros(length, np.int64)
    token = int(noise[0]) % VOCABULARY
    for place in range(length):
        follows = (token * 5 + 17) % VOCABULARY
        token = int(noise[place]) % VOCABULARY if noise[place] % 8 == 0 else follows
        ids[place] = token
    return _FIRST_ID + ids % (VOCABULARY - _FIRST_ID)


@dataclass(frozen=True)
class TextRows:
    """Rows of two documents each."""

    count: int
    offset: int = 0
    sequence_length: int = 128

    def __len__(self) -> int:
        return self.count

    def read(self, samples: Sequence[Sample]) -> Rows:
        """Rows for a decoder."""
        shape = (len(samples), self.sequence_length)
        ids, begins = np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
        for row, sample in enumerate(samples):
            ids[row] = _text(sample.number, self.sequence_length, self.offset)
            begins[row, 20 + sample.number % 50] = True
        return build_rows(ids, np.full(len(samples), self.sequence_length), begins)


@dataclass(frozen=True)
class MaskedText:
    """Rows of two texts each, of which some tokens are hidden."""

    count: int
    offset: int = 0
    sequence_length: int = 64

    def __len__(self) -> int:
        return self.count

    def read(self, samples: Sequence[Sample]) -> MaskedRows:
        """Rows for an encoder."""
        shape, few = (len(samples), self.sequence_length), (len(samples), _PREDICTIONS)
        ids, types = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        positions, labels = np.zeros(few, np.int64), np.full(few, IGNORED, np.int64)
        lengths, order = np.zeros(len(samples), np.int64), np.zeros(len(samples), np.int64)
        for row, sample in enumerate(samples):
            length = self.sequence_length - sample.number % 16
            text = _text(sample.number, length, self.offset)
            hidden = np.unique(1 + _mixed(np.arange(_PREDICTIONS) + 97 * sample.number) % (length - 1))
            positions[row, : len(hidden)], labels[row, : len(hidden)] = hidden, text[hidden]
            text[hidden] = _MASK_ID
            ids[row, :length], types[row, length // 2 : length] = text, 1
            lengths[row], order[row] = length, sample.number % 2
        return MaskedRows(ids, types, lengths, positions, labels, order)


@dataclass(frozen=True)
class Case:
    """A training."""

    objective: str
    config: dict[str, Any]
    rows: type[TextRows] | type[MaskedText]
    precisions: tuple[str, ...]
    """In which it is trained; each takes programs of its own, and a chip minutes to compile them."""
    micro_batch: int = _BATCH

    def model(self) -> Decoder | Encoder:
        """With weights that every machine has alike, on the host."""
        if self.objective == "causal-lm":
            made: Decoder | Encoder = Decoder(DecoderConfig.from_hf(self.config), tied=True)
        else:
            made = Encoder(EncoderConfig.from_hf(self.config))
        initialise(dict(made.named_parameters()), made.layouts, seed=11, std=0.05)
        return made


CASES = {
    "decoder": Case("causal-lm", _DECODER, TextRows, ("fp32", "bf16"), _BATCH // 2),
    "encoder": Case("masked-lm", _ENCODER, MaskedText, ("bf16",)),
    "encoder with dropout": Case("masked-lm", {**_ENCODER, **_DROPOUT}, MaskedText, ("fp32",)),
}


def job_of(case: Case, folder: Path, backend: Backend, precision: str, *, every: str = "never") -> TrainJob:
    """The training of a case in a folder; `every` is when it saves before its end."""
    rows: list[Examples[Any]] = [case.rows(_TRAIN_ROWS), case.rows(_HELDOUT_ROWS, offset=7_000_000)]
    recipe = Recipe.model_validate(
        {
            "kitae": 1,
            "name": "chip-test",
            "seed": 5,
            "objective": case.objective,
            "model": {"folder": "none"},
            "data": {"train": [{"path": "none"}], "sequence_length": rows[0].sequence_length},
            "optimizer": {"learning_rate": 3e-3},
            "training": {
                "duration": f"{STEPS} steps",
                "global_batch_size": _BATCH,
                "micro_batch_size": case.micro_batch,
                "precision": precision,
                "attention": "plain",
            },
            "checkpoint": {"every": every, "keep": 9},
        }
    )
    run = folder / "run"
    return TrainJob(
        model=case.model().to(backend.device),
        phases=(Phase(resolve(recipe, backend=backend.name).recipe, rows[0], rows[1], "chip-test"),),
        recipe_hash="chip-test",
        store=CheckpointStore(run / "checkpoints", keep=9, report=lambda line: None),
        folder=run,
        backend=backend,
        model_config=case.config,
        report=lambda line: None,
    )
