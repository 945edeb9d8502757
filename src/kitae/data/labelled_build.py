"""From sources to splits of labelled texts: what is left out is counted, and every id is checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kitae.data.documents import Document
from kitae.data.labelled_counts import doubts, of_tokenizer, split_counts
from kitae.data.labelled_encode import Content, Encoded, LabelledSpec
from kitae.data.labelled_pack import LabelledWriter
from kitae.data.labels import NO_LABEL, LabelRule
from kitae.data.normalise import DOCUMENT_ENDS
from kitae.data.pack import token_dtype
from kitae.data.preparation import Advance, Built, Job, Largest
from kitae.data.reading import Reading
from kitae.data.special import check_token
from kitae.data.split import draws_of, first_by_draw
from kitae.errors import DataError
from kitae.recipe.labels import LabelsConfig

SHORTEST_TEXT, SHORTEST_PAIR = 3, 5
"""Positions of a row that holds a token of each text."""


@dataclass(frozen=True)
class LabelledBatch:
    """Encoded texts with their labels; N texts."""

    texts: Encoded
    labels: NDArray[np.int32]
    """[N] numbers as the label rule gives them."""

    @property
    def digests(self) -> list[bytes]:
        """[N] hash of each text: equal texts, equal hashes, whatever their labels."""
        return self.texts.digests

    @property
    def full(self) -> NDArray[np.bool_]:
        """[N] whether each text has tokens."""
        return np.asarray(self.texts.lengths > 0)

    def select(self, chosen: NDArray[np.bool_]) -> LabelledBatch:
        """The texts for which `chosen` [N] is true."""
        return LabelledBatch(self.texts.select(chosen), self.labels[chosen])


@dataclass
class Side:
    """One split while it is written."""

    writer: LabelledWriter
    sample: int | None
    """How many texts are to be taken of it."""
    draws: list[NDArray[np.float64]] = field(default_factory=list)

    def add(self, batch: LabelledBatch, seed: int) -> None:
        """Append the texts of a batch, none of them empty."""
        self.writer.append(batch.texts, batch.labels)
        if self.sample is not None:
            self.draws.append(draws_of(batch.digests, seed=seed, purpose=b"kitae-sample"))

    def chosen(self) -> NDArray[np.int64] | None:
        """Places of the texts that are taken; None for all."""
        if self.sample is None or self.sample >= self.writer.rows:
            return None
        return first_by_draw(np.concatenate(self.draws), self.sample)


class LabelledBuilder:
    """Writes the splits of a job below a folder."""

    def __init__(self, job: Job, folder: Path, advance: Advance) -> None:
        assert job.config.labels is not None, "checked with the recipe"
        self._job = job
        self._folder = folder
        self._config: LabelsConfig = job.config.labels
        self._rule = LabelRule(self._config)
        self._reading = Reading[LabelledBatch](job, advance, self._add)
        self._sides: dict[str, Side] = {}
        self._largest = Largest()
        shortest = SHORTEST_PAIR if self._config.text_pair_field is not None else SHORTEST_TEXT
        if job.config.sequence_length < shortest:
            raise DataError(
                f"data.sequence_length: {job.config.sequence_length} positions hold no text beside the "
                f"special tokens; set it to {shortest} at least"
            )
        for token in job.tokenizer.special.need("cls", "sep"):
            self._check(token, "the tokens around a text")

    def build(self) -> Built:
        """Read, encode, split, sample and write; raises `DataError` when a split comes out empty."""
        job, samples = self._job, {"train": self._config.sample, "heldout": self._config.sample_heldout}
        spec = LabelledSpec(job.tokenizer, job.config.normalisation, job.config.sequence_length)
        try:
            for name in self._reading.names:
                writer = LabelledWriter(self._folder / name, token_dtype(job.tokenizer.vocab_size))
                self._sides[name] = Side(writer, samples[name])
            self._reading.run(spec, self._received, self._content)
            there = {name: side.writer.rows for name, side in self._sides.items()}
            self._rule.check_any(sum(there.values()))
            self._reading.check_full(there)
            names, class_of = self._rule.settle()
            splits = {name: self._close(side, names, class_of) for name, side in self._sides.items()}
            _require_classes(splits["train"]["labels"])
        except BaseException:
            for side in self._sides.values():
                side.writer.abandon()
            raise
        return Built(
            intakes=self._reading.intakes,
            splits=splits,
            largest=self._largest,
            duplicates=self._reading.duplicates,
            tokenizer=of_tokenizer(job.tokenizer),
            notes={"document_ends": DOCUMENT_ENDS, "labels": self._labels(names)},
            warnings=[*self._unsampled(there), *doubts(names, splits)],
        )

    def _content(self, document: Document) -> Content:
        label, *second = document.fields
        if not self._rule.keeps(label):
            return None
        return document.text, second[0] if second else None

    def _received(self, documents: list[Document], encoded: Encoded) -> LabelledBatch:
        """Put the labels to the texts, without those that are left out; raises `DataError` for a bad id."""
        labels = [document.fields[0] for document in documents]
        kept = np.array([self._rule.keeps(label) for label in labels], np.bool_)
        self._rule.dropped.update(
            label or NO_LABEL for label, keep in zip(labels, kept, strict=True) if not keep
        )
        self._inspect(documents, encoded)
        numbers = [self._rule.number(label) for label, keep in zip(labels, kept, strict=True) if keep]
        texts = encoded if kept.all() else encoded.select(kept)
        return LabelledBatch(texts, np.array(numbers, np.int32))

    def _inspect(self, documents: list[Document], encoded: Encoded) -> None:
        if not len(encoded.ids):
            return
        place = int(encoded.ids.argmax())
        if (largest := int(encoded.ids[place])) > self._largest.id:
            document = int(np.searchsorted(np.cumsum(encoded.lengths), place, side="right"))
            self._largest = Largest(largest, documents[document].where)
            self._check(largest, documents[document].where)

    def _check(self, token: int, where: str) -> None:
        check_token(token, self._job.tokenizer.token(token), where, self._job.embedding_rows)

    def _add(self, name: str, batch: LabelledBatch) -> None:
        self._sides[name].add(batch, self._job.seed)

    def _close(self, side: Side, names: list[str], class_of: NDArray[np.int32]) -> dict[str, Any]:
        length = self._job.config.sequence_length
        return split_counts(side.writer.close(side.chosen(), names, class_of, length), names, length)

    def _labels(self, names: list[str]) -> dict[str, Any]:
        return {
            "field": self._config.field,
            "classes": names,
            "values": self._config.classes,
            "dropped_texts": sum(self._rule.dropped.values()),
            "dropped_by_label": dict(self._rule.dropped.most_common(100)),
        }

    def _unsampled(self, there: dict[str, int]) -> list[str]:
        asked = {"train": "sample", "heldout": "sample_heldout"}
        return [
            f"data.labels.{asked[name]} asks for {side.sample} texts, and there are {there[name]}: "
            "all were taken"
            for name, side in self._sides.items()
            if side.sample is not None and side.sample > there[name]
        ]

    def needed_bytes(self) -> int:
        """About how much the result takes in all, judged by what came of the part that was read."""
        return self._reading.scaled(sum(side.writer.written_bytes for side in self._sides.values()))


def _require_classes(texts: dict[str, int]) -> None:
    """Raise `DataError` where all training texts are of one class, of those with their number of `texts`."""
    present = [name for name, count in texts.items() if count]
    if len(present) < 2:
        raise DataError(
            f"data.labels: all {sum(texts.values()):,} training texts are of the class {present[0]}, from "
            "which nothing is learned; look at data.labels.values, or give texts of the other classes"
        )
