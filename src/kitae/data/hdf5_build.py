"""From HDF5 shards to rows that are read at random: each shard is unpacked once, a piece at a time.

The shards are compressed in blocks, of which a random row would unpack a whole one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kitae.data.documents import Tally
from kitae.data.hdf5_rows import Shape, ShardRows, read_shard
from kitae.data.masked_pack import FORMAT, MaskedMeta, MaskedWriter, RawRows
from kitae.data.masked_settings import described, masking_of
from kitae.data.pack import token_dtype
from kitae.data.preparation import Advance, Built, Intake, Job, Largest
from kitae.data.rows import IGNORED
from kitae.data.sources import FileSource, Source
from kitae.data.special import check_token
from kitae.data.split import heldout_mask
from kitae.errors import DataError
from kitae.recipe.masking import MaskingConfig


@dataclass
class Side:
    """One split while it is written."""

    writer: MaskedWriter
    tokens: int = 0
    """Of text: neither special ones nor padding."""
    positions: int = 0
    """That hold any token."""
    predictions: int = 0
    pairs: int = 0
    random_pairs: int = 0

    def add(self, raw: RawRows, text: NDArray[np.bool_]) -> None:
        """Append rows; `text` [n, S]: where they hold text, hidden or not."""
        assert raw.labels is not None
        self.writer.append(raw)
        self.tokens += int(text.sum())
        self.positions += int(raw.shape[:, 0].sum())
        self.predictions += int((raw.labels != IGNORED).sum())
        self.pairs += int((raw.shape[:, 2] != IGNORED).sum())
        self.random_pairs += int((raw.shape[:, 2] == 1).sum())

    def counts(self, sequence_length: int) -> dict[str, Any]:
        """What the card says of the split; its documents are rows, of whose text nothing is known."""
        rows = self.writer.rows
        return {
            "documents": rows,
            "documents_changed_by_normalisation": 0,
            "tokens": self.tokens,
            "rows": rows,
            "pairs": self.pairs,
            "random_pairs": self.random_pairs,
            "padding": rows * sequence_length - self.positions,
            "masked": {
                "rows_counted": rows,
                "predictions": self.predictions,
                "share_of_tokens": round(self.predictions / max(1, self.tokens), 5),
            },
        }


@dataclass
class ShardBuilder:
    """Writes the splits of a job, whose sources are shards, below a folder."""

    job: Job
    folder: Path
    advance: Advance
    _sides: dict[str, Side] = field(default_factory=dict)
    _intakes: dict[str, Intake] = field(default_factory=dict)
    _largest: Largest = field(default_factory=Largest)
    _known: set[bytes] = field(default_factory=set)
    _duplicates: int = 0
    _read: int = 0

    def build(self) -> Built:
        """Read, check, split and write; raises `DataError` when a split comes out empty."""
        sources = self.job.sources
        try:
            for name in (("heldout",) if sources.heldout or self.job.fraction else ()) + ("train",):
                self._sides[name] = Side(self._writer(name))
            for name, some in (("heldout", sources.heldout), ("train", sources.train)):
                for rows, shard in self._rows(name, some) if some else ():
                    self._deal(name, rows, shard)
            for source in (*sources.train, *sources.heldout):
                source.check_unchanged()
            splits = {name: self._close(name, side) for name, side in self._sides.items()}
        except BaseException:
            for side in self._sides.values():
                side.writer.abandon()
            raise
        return Built(
            intakes=self._intakes,
            splits=splits,
            largest=self._largest,
            duplicates=self._duplicates,
            tokenizer=described(self.job.tokenizer),
            notes={"masks": "as the shards have them"},
            warnings=_unused(masking_of(self.job.config)),
        )

    def _writer(self, name: str) -> MaskedWriter:
        size = self.job.config.sequence_length
        most = masking_of(self.job.config).predictions(size)
        dtype = token_dtype(self.job.tokenizer.vocab_size)
        return MaskedWriter(self.folder / name, MaskedMeta(FORMAT, 0, size, dtype, most, None))

    def _rows(self, name: str, sources: list[Source]) -> Iterator[tuple[ShardRows, str]]:
        """All rows of some sources, with the name of their shard."""
        masking, size = masking_of(self.job.config), self.job.config.sequence_length
        shape = Shape(size, masking.predictions(size), masking.next_sentence, self.job.tokenizer.vocab_size)
        tallies = [Tally(self.job.config.on_bad_line, self._advance) for _ in sources]
        self._intakes[name] = Intake(tallies)
        for source, tally in zip(sources, tallies, strict=True):
            assert isinstance(source, FileSource)
            for file in source.files:
                for rows in read_shard(file.path, file.name, shape, tally):
                    yield rows, file.name

    def _advance(self, num_bytes: int) -> None:
        self._read += num_bytes
        self.advance(num_bytes)

    def _deal(self, name: str, rows: ShardRows, shard: str) -> None:
        """Give the rows to their split; raises `DataError` for an id that the model does not know."""
        if not len(rows.numbers):
            return
        self._note_largest(rows, shard)
        digests = [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in rows.originals]
        if name == "heldout":
            self._known.update(digests)
        else:
            self._duplicates += sum(digest in self._known for digest in digests)
        special = sorted(self.job.tokenizer.special.all)
        real = np.arange(rows.originals.shape[1]) < rows.raw.shape[:, :1]
        text = real & ~np.isin(rows.originals, special)
        if name == "heldout" or self.job.fraction is None:
            self._sides[name].add(rows.raw, text)
            return
        mask = heldout_mask(digests, fraction=self.job.fraction, seed=self.job.seed)
        self._sides["heldout"].add(rows.raw.select(mask), text[mask])
        self._sides["train"].add(rows.raw.select(~mask), text[~mask])

    def _note_largest(self, rows: ShardRows, shard: str) -> None:
        highest = np.maximum(rows.originals.max(axis=1), rows.raw.ids.max(axis=1))
        row = int(highest.argmax())
        if (largest := int(highest[row])) > self._largest.id:
            self._largest = Largest(largest, f"{shard} row {rows.numbers[row]}")
            token = self.job.tokenizer.token(largest)
            check_token(largest, token, self._largest.where, self.job.embedding_rows)

    def _close(self, name: str, side: Side) -> dict[str, Any]:
        if not side.writer.rows:
            raise DataError(f"data.{name}: there are no rows in the shards; name others, or change the split")
        side.writer.close()
        return side.counts(self.job.config.sequence_length)

    def needed_bytes(self) -> int:
        """About how much the rows take in all, judged by the part that was read."""
        written = sum(side.writer.written_bytes for side in self._sides.values())
        total = self.job.num_bytes or 0
        return max(written, written * total // self._read) if self._read else total


def _unused(masking: MaskingConfig) -> list[str]:
    """Settings that change nothing where masks come with the rows."""
    used = ("max_predictions", "next_sentence", "dynamic")
    return [
        f"data.masking.{name}: has no effect on shards, which have their own masks"
        for name, info in MaskingConfig.model_fields.items()
        if name not in used and getattr(masking, name) != info.default
    ]
