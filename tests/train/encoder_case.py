"""Small encoders, and rows for them that need no text, for the tests of training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tiny_training import recipe

from kitae.backend.table import select
from kitae.checkpoint.store import CheckpointStore
from kitae.data.examples import Sample
from kitae.data.labelled_rows import LabelledRows
from kitae.data.masked_rows import MaskedRows
from kitae.data.rows import IGNORED
from kitae.model.encoder import Encoder
from kitae.model.encoder_config import EncoderConfig
from kitae.model.init import initialise
from kitae.parallel.mesh import Mesh
from kitae.parallel.region import region_of
from kitae.recipe.resolve import resolve
from kitae.train.job import Phase, TrainJob

VOCABULARY = 53
PREDICTIONS = 3
CLASSES = 3
CLASS = {
    "masked-lm": "BertForPreTraining",
    "mlm-alone": "BertForMaskedLM",
    "classification": "BertForSequenceClassification",
}


def config_of(kind: str, dropout: float = 0.0) -> dict[str, Any]:
    """A config.json."""
    return {
        "model_type": "bert",
        "architectures": [CLASS[kind]],
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 32,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "id2label": {str(number): f"class {number}" for number in range(CLASSES)},
    }


def tiny_encoder(
    kind: str, dropout: float = 0.0, mesh: Mesh | None = None, sequence_parallel: bool = False
) -> Encoder:
    """This rank's part of an encoder with random weights."""
    config = EncoderConfig.from_hf(config_of(kind, dropout))
    encoder = Encoder(config, region=region_of((mesh or Mesh()).tensor, sequence_parallel))
    initialise(dict(encoder.named_parameters()), encoder.layouts, seed=0, std=0.1)
    return encoder


@dataclass(frozen=True)
class Masked:
    """Rows whose masks depend on sample and epoch: a hidden token is its left neighbour plus one."""

    count: int
    sequence_length: int = 12
    pairs: bool = True

    def __len__(self) -> int:
        return self.count

    def read(self, samples: list[Sample]) -> MaskedRows:
        rows = [self._row(sample) for sample in samples]
        columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)] if rows else None
        return MaskedRows(*columns) if columns else MaskedRows(*self._empty())

    def _row(self, sample: Sample) -> tuple[Any, ...]:
        random = np.random.default_rng((sample.number, self.sequence_length))
        length = int(random.integers(self.sequence_length // 2, self.sequence_length + 1))
        start = int(random.integers(5, VOCABULARY))
        ids = np.zeros(self.sequence_length, np.int64)
        ids[:length] = 5 + (start + np.arange(length)) % (VOCABULARY - 5)
        types = np.where(np.arange(self.sequence_length) >= length // 2, 1, 0)
        types[length:] = 0
        masks = np.random.default_rng((sample.number, sample.epoch, 1))
        chosen = np.sort(masks.choice(np.arange(1, length), 1 + sample.number % PREDICTIONS, replace=False))
        positions, labels = np.zeros(PREDICTIONS, np.int64), np.full(PREDICTIONS, IGNORED)
        positions[: len(chosen)], labels[: len(chosen)] = chosen, ids[chosen]
        ids[chosen] = 4
        return ids, types, length, positions, labels, sample.number % 2 if self.pairs else IGNORED

    def _empty(self) -> list[np.ndarray]:
        wide, few = np.zeros((0, self.sequence_length), np.int64), np.zeros((0, PREDICTIONS), np.int64)
        none = np.zeros(0, np.int64)
        return [wide, wide, none, few, few, none]


@dataclass(frozen=True)
class Labelled:
    """Rows whose label is the remainder of their first token."""

    count: int
    sequence_length: int = 12

    def __len__(self) -> int:
        return self.count

    def read(self, samples: list[Sample]) -> LabelledRows:
        count = len(samples)
        ids = np.zeros((count, self.sequence_length), np.int64)
        lengths, labels = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for place, sample in enumerate(samples):
            random = np.random.default_rng((sample.number, 7))
            lengths[place] = random.integers(3, self.sequence_length + 1)
            ids[place, : lengths[place]] = random.integers(5, VOCABULARY, lengths[place])
            labels[place] = ids[place, 1] % CLASSES
        return LabelledRows(ids, np.zeros_like(ids), lengths, labels)


ROWS = {"masked-lm": Masked, "classification": Labelled}


def encoder_job(
    folder: Path,
    objective: str,
    mesh: Mesh | None = None,
    *,
    phases: tuple[tuple[str | None, Any, dict[str, Any]], ...] = (),
    dropout: float = 0.0,
    **sections: Any,
) -> TrainJob:
    """A job of an encoder; `phases` are names, training rows and what each changes of the sections."""
    mesh = mesh or Mesh()
    run, rows = folder / "run", ROWS[objective]
    labels = {"labels": {"field": "label"}} if objective == "classification" else {}
    data = {"data": {"train": [{"path": "text"}], "sequence_length": 12, **labels}}
    made = [
        Phase(
            resolve(recipe(objective=objective, **{**data, **sections, **more}), backend="cpu").recipe,
            train,
            rows(7, 12),
            "data",
            name,
        )
        for name, train, more in phases or ((None, rows(24), {}),)
    ]
    sequence_parallel = made[0].recipe.parallel.sequence_parallel
    return TrainJob(
        model=tiny_encoder(objective, dropout, mesh, sequence_parallel),
        phases=tuple(made),
        recipe_hash="tiny",
        store=CheckpointStore(run / "checkpoints", keep=9, control=mesh.control),
        folder=run,
        backend=select("cpu"),
        model_config=config_of(objective, dropout),
        report=lambda line: None,
        mesh=mesh,
    )
