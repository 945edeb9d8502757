"""From sources to packed splits: every token is accounted for, and every id is checked against the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kitae.data.documents import Document
from kitae.data.normalise import DOCUMENT_ENDS
from kitae.data.pack import DOCUMENT_DTYPE, PackedMeta, PackWriter, token_dtype
from kitae.data.preparation import Advance, Built, Job, Largest
from kitae.data.reading import Reading
from kitae.data.special import check_token, special_ids
from kitae.data.tokenise import Batch, EncoderSpec
from kitae.errors import DataError


@dataclass
class Side:
    """One split while it is written."""

    writer: PackWriter
    documents: int = 0
    num_bytes: int = 0
    num_chars: int = 0
    changed: int = 0

    def add(self, batch: Batch) -> None:
        """Append the documents of a batch, none of them empty."""
        self.writer.append(batch.ids, batch.lengths)
        self.documents += len(batch.lengths)
        self.num_bytes += int(batch.num_bytes.sum())
        self.num_chars += int(batch.num_chars.sum())
        self.changed += int(batch.changed.sum())


class PackBuilder:
    """Writes the packed splits of a job below a folder."""

    def __init__(self, job: Job, folder: Path, advance: Advance) -> None:
        self._job = job
        self._folder = folder
        self._bos, self._eos = special_ids(job.config, job.tokenizer)
        for token in (*self._bos, *self._eos):
            self._check(token, "a document's begin or end (data.bos, data.eos)")
        self._sides: dict[str, Side] = {}
        self._reading = Reading[Batch](job, advance, self._add)
        self._largest = Largest()
        self._inside = {"bos": 0, "eos": 0}

    def build(self) -> Built:
        """Read, tokenise, split and write; raises `DataError` when a split comes out empty."""
        job = self._job
        spec = EncoderSpec(job.tokenizer.to_json(), job.config.normalisation, self._bos, self._eos)
        try:
            for name in self._reading.names:
                writer = PackWriter(self._folder / name, token_dtype(job.tokenizer.vocab_size))
                self._sides[name] = Side(writer)
            self._reading.run(spec, self._inspected)
            self._reading.check_full({name: side.documents for name, side in self._sides.items()})
            splits = {name: self._close(name, side) for name, side in self._sides.items()}
        except BaseException:
            for side in self._sides.values():
                side.writer.abandon()
            raise
        return Built(
            intakes=self._reading.intakes,
            splits=splits,
            largest=self._largest,
            duplicates=self._reading.duplicates,
            tokenizer={
                "before_each_document": [[token, job.tokenizer.token(token)] for token in self._bos],
                "behind_each_document": [[token, job.tokenizer.token(token)] for token in self._eos],
            },
            notes={"document_ends": DOCUMENT_ENDS},
            warnings=self._warnings(),
        )

    def _add(self, name: str, batch: Batch) -> None:
        self._sides[name].add(batch)

    def _inspected(self, documents: list[Document], batch: Batch) -> Batch:
        """Note the largest id, and begin and end tokens inside the text; raises `DataError` for a bad id."""
        if not len(batch.ids):
            return batch
        place = int(batch.ids.argmax())
        if (largest := int(batch.ids[place])) > self._largest.id:
            document = int(np.searchsorted(np.cumsum(batch.lengths), place, side="right"))
            self._largest = Largest(largest, documents[document].where)
            self._check(largest, documents[document].where)
        kept = int(batch.full.sum())
        tokenizer = self._job.tokenizer
        framed = [*self._bos, *self._eos]
        for name, token in (("bos", tokenizer.bos_id), ("eos", tokenizer.eos_id)):
            if token is not None:
                self._inside[name] += int((batch.ids == token).sum()) - kept * framed.count(token)
        return batch

    def _check(self, token: int, where: str) -> None:
        check_token(token, self._job.tokenizer.token(token), where, self._job.embedding_rows)

    def _close(self, name: str, side: Side) -> dict[str, Any]:
        config = self._job.config
        # Held-out text is always padded: each of its tokens counts once.
        pad = name == "heldout" or config.remainder == "pad"
        meta = side.writer.close(
            sequence_length=config.sequence_length, document_mask=config.document_mask, pad_remainder=pad
        )
        assert meta.tokens == meta.rows * meta.sequence_length - meta.padding + meta.remainder
        if not meta.rows:
            raise DataError(
                f"data.sequence_length: {name} text is {meta.tokens} tokens, less than one row of "
                f"{config.sequence_length}; lower it, set data.remainder: pad, or give more text"
            )
        return _counts(side, meta, len(self._bos) + len(self._eos))

    def _warnings(self) -> list[str]:
        names = (("bos", "begin"), ("eos", "end"))
        return [
            f"the {word} token stands {self._inside[name]} times inside the text itself"
            for name, word in names
            if self._inside[name]
        ]

    def needed_bytes(self) -> int:
        """About how much the packed data takes in all, judged by what came of the part that was read."""
        item = np.dtype(token_dtype(self._job.tokenizer.vocab_size)).itemsize
        writers = [side.writer for side in self._sides.values() if side.writer.tokens]
        return self._reading.scaled(
            sum(writer.tokens * item + writer.documents * DOCUMENT_DTYPE.itemsize for writer in writers)
        )


def _counts(side: Side, meta: PackedMeta, special_per_document: int) -> dict[str, Any]:
    special = side.documents * special_per_document
    return {
        "documents": side.documents,
        "bytes": side.num_bytes,
        "chars": side.num_chars,
        "documents_changed_by_normalisation": side.changed,
        "tokens": meta.tokens,
        "text_tokens": meta.tokens - special,
        "begin_and_end_tokens": special,
        "rows": meta.rows,
        "tokens_in_rows": meta.tokens - meta.remainder,
        "tokens_left_over": meta.remainder,
        "padding": meta.padding,
    }
