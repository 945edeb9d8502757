"""From sources to packed splits: every token is accounted for, and every id is checked against the model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kitae.data.documents import Document, Tally
from kitae.data.pack import DOCUMENT_DTYPE, PackedMeta, PackWriter, token_dtype
from kitae.data.sources import Source, Sources
from kitae.data.special import check_token, special_ids
from kitae.data.split import heldout_mask
from kitae.data.tokenise import Batch, EncoderSpec
from kitae.data.tokenizer import TextTokenizer
from kitae.data.workers import Encode, encoding
from kitae.errors import DataError
from kitae.recipe.sources import DataConfig


@dataclass(frozen=True)
class Job:
    """All that a build needs."""

    config: DataConfig
    tokenizer: TextTokenizer
    embedding_rows: int
    seed: int
    sources: Sources
    workers: int

    @property
    def fraction(self) -> float | None:
        """Share of the training documents to hold out, if the recipe says so."""
        return None if self.config.heldout is None else self.config.heldout.fraction

    @property
    def num_bytes(self) -> int | None:
        """Bytes of the sources on disk, if known."""
        return self.sources.num_bytes


@dataclass(frozen=True)
class Largest:
    """The largest id of the text, and a document that holds it."""

    id: int = -1
    where: str = ""


@dataclass
class Side:
    """One split while it is written."""

    writer: PackWriter
    documents: int = 0
    num_bytes: int = 0
    num_chars: int = 0
    changed: int = 0
    meta: PackedMeta | None = None

    def add(self, batch: Batch) -> None:
        """Append the documents of a batch, none of them empty."""
        self.writer.append(batch.ids, batch.lengths)
        self.documents += len(batch.lengths)
        self.num_bytes += int(batch.num_bytes.sum())
        self.num_chars += int(batch.num_chars.sum())
        self.changed += int(batch.changed.sum())


@dataclass
class Intake:
    """What the sources of one split gave."""

    tallies: list[Tally]
    empty: int = 0


@dataclass
class Built:
    """The counts of a whole build."""

    sides: dict[str, Side] = field(default_factory=dict)
    intakes: dict[str, Intake] = field(default_factory=dict)
    largest: Largest = Largest()
    special_in_text: dict[str, int] = field(default_factory=dict)
    """How often the begin and end tokens stand in the text itself."""
    duplicates: int = 0
    """Training documents that a held-out source also holds."""


class Builder:
    """Writes the splits of a job below a folder."""

    def __init__(self, job: Job, folder: Path, advance: Callable[[int], None]) -> None:
        self._job = job
        self._folder = folder
        self._draw = advance
        self._read = 0
        self._bos, self._eos = special_ids(job.config, job.tokenizer)
        for token in (*self._bos, *self._eos):
            self._check(token, "a document's begin or end (data.bos, data.eos)")
        self.result = Built(special_in_text={"bos": 0, "eos": 0})

    def build(self) -> Built:
        """Read, tokenise, split and write; raises `DataError` when a split comes out empty."""
        try:
            self._write_all()
            for source in (*self._job.sources.train, *self._job.sources.heldout):
                source.check_unchanged()
            for name, side in self.result.sides.items():
                self._close(name, side)
        except BaseException:
            for side in self.result.sides.values():
                side.writer.abandon()
            raise
        return self.result

    def _write_all(self) -> None:
        job = self._job
        spec = EncoderSpec(job.tokenizer.to_json(), job.config.normalisation, self._bos, self._eos)
        known: set[bytes] = set()
        with encoding(spec, job.workers) as encode:
            if job.sources.heldout:
                side = self._open("heldout")
                for batch in self._batches("heldout", job.sources.heldout, encode):
                    side.add(batch)
                    known.update(batch.digests)
            self._train(self._batches("train", job.sources.train, encode), known)

    def _train(self, batches: Iterator[Batch], known: set[bytes]) -> None:
        train, fraction = self._open("train"), self._job.fraction
        held = None if fraction is None else self._open("heldout")
        for batch in batches:
            self.result.duplicates += sum(digest in known for digest in batch.digests)
            if held is None or fraction is None:
                train.add(batch)
                continue
            mask = heldout_mask(batch.digests, fraction=fraction, seed=self._job.seed)
            train.add(batch.select(~mask))
            held.add(batch.select(mask))

    def _open(self, name: str) -> Side:
        writer = PackWriter(self._folder / name, token_dtype(self._job.tokenizer.vocab_size))
        return self.result.sides.setdefault(name, Side(writer))

    def _batches(self, name: str, sources: list[Source], encode: Encode[Document, Batch]) -> Iterator[Batch]:
        tallies = [Tally(self._job.config.on_bad_line, self._advance) for _ in sources]
        intake = self.result.intakes.setdefault(name, Intake(tallies))
        pairs = zip(sources, tallies, strict=True)
        stream = itertools.chain.from_iterable(source.documents(tally) for source, tally in pairs)
        for documents, batch in encode(stream):
            self._inspect(documents, batch)
            full = batch.lengths > 0
            intake.empty += int((~full).sum())
            yield batch if full.all() else batch.select(full)

    def _advance(self, num_bytes: int) -> None:
        self._read += num_bytes
        self._draw(num_bytes)

    def _inspect(self, documents: list[Document], batch: Batch) -> None:
        """Note the largest id, and begin and end tokens inside the text; raises `DataError` for a bad id."""
        if not len(batch.ids):
            return
        place = int(batch.ids.argmax())
        if (largest := int(batch.ids[place])) > self.result.largest.id:
            document = int(np.searchsorted(np.cumsum(batch.lengths), place, side="right"))
            self.result.largest = Largest(largest, documents[document].where)
            self._check(largest, documents[document].where)
        kept = int((batch.lengths > 0).sum())
        tokenizer = self._job.tokenizer
        framed = [*self._bos, *self._eos]
        for name, token in (("bos", tokenizer.bos_id), ("eos", tokenizer.eos_id)):
            if token is not None:
                inside = int((batch.ids == token).sum()) - kept * framed.count(token)
                self.result.special_in_text[name] += inside

    def _check(self, token: int, where: str) -> None:
        check_token(token, self._job.tokenizer.token(token), where, self._job.embedding_rows)

    def _close(self, name: str, side: Side) -> None:
        config = self._job.config
        if not side.documents:
            raise DataError(self._empty(name))
        # Held-out text is always padded: each of its tokens counts once.
        pad = name == "heldout" or config.remainder == "pad"
        meta = side.meta = side.writer.close(
            sequence_length=config.sequence_length, document_mask=config.document_mask, pad_remainder=pad
        )
        assert meta.tokens == meta.rows * meta.sequence_length - meta.padding + meta.remainder
        if not meta.rows:
            raise DataError(
                f"data.sequence_length: {name} text is {meta.tokens} tokens, less than one row of "
                f"{config.sequence_length}; lower it, set data.remainder: pad, or give more text"
            )

    def _empty(self, name: str) -> str:
        """Why a split has no documents, and what to do."""
        fraction = self._job.fraction
        total = sum(side.documents for side in self.result.sides.values())
        if fraction is not None and total:
            return (
                f"data.heldout.fraction: {fraction} of {total} documents leaves {name} empty; change the "
                "fraction or the seed, or give more documents (data.train.*.document: line or paragraph)"
            )
        tallies = self.result.intakes["train" if fraction is not None else name].tallies
        read, bad = sum(tally.documents for tally in tallies), sum(tally.bad_lines for tally in tallies)
        return f"data.{name}: there is no text: {read} documents, all empty, and {bad} bad lines left out"

    def needed_bytes(self) -> int:
        """About how much the packed data takes in all, judged by what came of the part that was read."""
        item = np.dtype(token_dtype(self._job.tokenizer.vocab_size)).itemsize
        writers = [side.writer for side in self.result.sides.values()]
        if not any(writer.tokens for writer in writers):
            return self._job.num_bytes or 0
        written = sum(writer.tokens * item + writer.documents * DOCUMENT_DTYPE.itemsize for writer in writers)
        return max(written, written * (self._job.num_bytes or 0) // max(self._read, 1))
