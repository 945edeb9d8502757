"""From sources to rows for masked-language training: sentences of all documents first, then rows of them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kitae.data.documents import Document
from kitae.data.masked_settings import described, masking_of
from kitae.data.masked_split import MaskedSplit, rows_of
from kitae.data.masking import MOST_POSITIONS
from kitae.data.normalise import DOCUMENT_ENDS
from kitae.data.pack import token_dtype
from kitae.data.preparation import Advance, Built, Job, Largest
from kitae.data.reading import Reading
from kitae.data.sentence_encoder import SentenceBatch, SentenceSpec
from kitae.data.sentence_store import SentenceWriter
from kitae.data.special import check_token
from kitae.errors import DataError

SENTENCES = ".sentences"


@dataclass
class Side:
    """One split while it is read."""

    writer: SentenceWriter
    documents: int = 0
    num_bytes: int = 0
    num_chars: int = 0
    changed: int = 0
    cut: int = 0
    unknown: int = 0

    def add(self, batch: SentenceBatch, unknown: int | None) -> None:
        """Append the documents of a batch, none of them empty."""
        self.writer.append(batch)
        self.documents += len(batch.sentences)
        self.num_bytes += int(batch.num_bytes.sum())
        self.num_chars += int(batch.num_chars.sum())
        self.changed += int(batch.changed.sum())
        self.cut += int(batch.cut.sum())
        self.unknown += int((batch.ids == unknown).sum())

    def counts(self) -> dict[str, Any]:
        """What the card says of the documents."""
        return {
            "documents": self.documents,
            "bytes": self.num_bytes,
            "chars": self.num_chars,
            "documents_changed_by_normalisation": self.changed,
            "sentences": self.writer.sentences,
            "sentences_cut": self.cut,
            "unknown_tokens": self.unknown,
        }


class MaskedBuilder:
    """Writes the splits of a job below a folder."""

    def __init__(self, job: Job, folder: Path, advance: Advance) -> None:
        self._job = job
        self._folder = folder
        masking = masking_of(job.config)
        size = job.config.sequence_length
        room = size - rows_of(masking).framing
        if room < 2 or size >= MOST_POSITIONS:
            raise DataError(f"data.sequence_length: {size} is no length for masked-lm; give 5 to 65535")
        self._spec = SentenceSpec(
            job.tokenizer,
            job.config.normalisation,
            masking.sentences,
            masking.whole_word,
            longest=room,
            piece=room // 2 if masking.next_sentence else room,
        )
        self._framing = job.tokenizer.special.need("cls", "sep", "pad", "mask")
        for token in self._framing:
            self._check(token, "a special token that each row needs")
        self._sides: dict[str, Side] = {}
        self._splits: list[MaskedSplit] = []
        self._reading = Reading[SentenceBatch](job, advance, self._add)
        self._largest = Largest()

    def build(self) -> Built:
        """Read, encode, split and write; raises `DataError` when a split comes out empty."""
        dtype = token_dtype(self._job.tokenizer.vocab_size)
        kept = self._folder / SENTENCES
        try:
            for name in self._reading.names:
                self._sides[name] = Side(SentenceWriter(kept / name, dtype))
            self._reading.run(self._spec, self._received)
            self._reading.check_full({name: side.documents for name, side in self._sides.items()})
            splits = {name: self._write(name, side) for name, side in self._sides.items()}
            _require_predictions(splits)
        except BaseException:
            self._abandon()
            raise
        shutil.rmtree(kept)
        return Built(
            intakes=self._reading.intakes,
            splits=splits,
            largest=self._largest,
            duplicates=self._reading.duplicates,
            tokenizer=described(self._job.tokenizer),
            notes={"document_ends": DOCUMENT_ENDS},
            warnings=warnings(splits),
        )

    def _received(self, documents: list[Document], batch: SentenceBatch) -> SentenceBatch:
        """Note the largest id; raises `DataError` for one that the model does not know."""
        if len(batch.ids) and (largest := int(batch.ids.max())) > self._largest.id:
            sentence = np.searchsorted(np.cumsum(batch.lengths), batch.ids.argmax(), side="right")
            document = int(np.searchsorted(np.cumsum(batch.sentences), sentence, side="right"))
            self._largest = Largest(largest, documents[document].where)
            self._check(largest, documents[document].where)
        return batch

    def _check(self, token: int, where: str) -> None:
        check_token(token, self._job.tokenizer.token(token), where, self._job.embedding_rows)

    def _add(self, name: str, batch: SentenceBatch) -> None:
        self._sides[name].add(batch, self._job.tokenizer.special.unk)

    def _write(self, name: str, side: Side) -> dict[str, Any]:
        """Make the rows of a split; what the card says of it."""
        split = MaskedSplit(self._job, name, side.writer.close(), self._framing)
        self._splits.append(split)
        counts = split.write(self._folder / name)
        assert counts["tokens"] == side.writer.tokens, "tokens of documents and of rows differ"
        return {**side.counts(), **counts}

    def _abandon(self) -> None:
        for side in self._sides.values():
            side.writer.abandon()
        for split in self._splits:
            split.abandon()

    def needed_bytes(self) -> int:
        """About how much the rows, and the sentences while they are made, take in all."""
        written = sum(split.written_bytes for split in self._splits)
        tokens = sum(side.writer.tokens for side in self._sides.values())
        item = np.dtype(token_dtype(self._job.tokenizer.vocab_size)).itemsize
        return written + self._reading.scaled(2 * tokens * (item + 1))


def _require_predictions(splits: dict[str, dict[str, Any]]) -> None:
    """Raise `DataError` for a split of which nothing can be hidden: training would learn nothing from it."""
    for name, split in splits.items():
        if not split["masked"]["predictions"]:
            unknown = split["unknown_tokens"] / max(1, split["tokens"])
            raise DataError(
                f"nothing of the {name} text can be predicted: {unknown:.1%} of its tokens are unknown to "
                "the tokenizer, and special tokens are never hidden; name the tokenizer that was made for "
                "this text with data.tokenizer"
            )


def warnings(splits: dict[str, dict[str, Any]]) -> list[str]:
    """What the counts of the splits give reason to doubt."""
    found = []
    for name, split in splits.items():
        if split["unknown_tokens"] > 0.02 * split["tokens"]:
            found.append(
                f"{split['unknown_tokens'] / split['tokens']:.1%} of the tokens of {name} are unknown: the "
                "vocabulary is of another language, or was made with another dictionary"
            )
        if abs(split["random_pairs"] - split["pairs"] / 2) > 0.05 * split["pairs"]:
            found.append(
                f"{split['random_pairs']:,} of {split['pairs']:,} pairs of {name} are random ones, not half: "
                "many documents are too short to have a next sentence"
            )
        if split["tokens_cut_off"] > 0.2 * split["tokens"]:
            found.append(
                f"{split['tokens_cut_off'] / split['tokens']:.1%} of the tokens of {name} were cut off: many "
                "sentences are as long as a row; raise data.sequence_length, or see data.masking.sentences"
            )
    return found
