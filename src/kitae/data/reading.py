"""The sources of a job are read, encoded and dealt out to the splits, in the same way for every objective."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from kitae.data.documents import Document, Tally
from kitae.data.preparation import Advance, Intake, Job
from kitae.data.sources import Source
from kitae.data.split import heldout_mask
from kitae.data.workers import Encode, Spec, encoding, text_of
from kitae.errors import DataError

AnyBatch = TypeVar("AnyBatch", bound="DocumentBatch")


class DocumentBatch(Protocol):
    """Encoded documents; N documents."""

    @property
    def digests(self) -> list[bytes]:
        """[N] hash of each document: equal documents, equal hashes."""
        ...

    @property
    def full(self) -> NDArray[np.bool_]:
        """[N] whether each document holds anything."""
        ...

    def select(self: AnyBatch, chosen: NDArray[np.bool_], /) -> AnyBatch:
        """The documents for which `chosen` [N] is true."""
        ...


class Reading(Generic[AnyBatch]):
    """One pass over all sources; `take` gets each batch and the name of its split, held-out sources first."""

    def __init__(self, job: Job, advance: Advance, take: Callable[[str, AnyBatch], None]) -> None:
        self._job = job
        self._draw = advance
        self._take = take
        self._known: set[bytes] = set()
        self.intakes: dict[str, Intake] = {}
        self.duplicates = 0
        """Training documents that a held-out source also holds."""
        self.read_bytes = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The splits that there will be, in the order in which they are written."""
        if self._job.sources.heldout:
            return ("heldout", "train")
        return ("train",) if self._job.fraction is None else ("train", "heldout")

    def run(
        self,
        spec: Spec[Any],
        receive: Callable[[list[Any], Any], AnyBatch],
        content: Callable[[Any], object] = text_of,
    ) -> None:
        """Read everything. `receive` looks at what the encoder made of documents, and gives the batch of it.

        Raises `DataError`, also for a source that changed meanwhile.
        """
        sources = self._job.sources
        with encoding(spec, self._job.workers, content) as encode:
            if sources.heldout:
                for batch in self._batches("heldout", sources.heldout, encode, receive):
                    self._known.update(batch.digests)
                    self._take("heldout", batch)
            for batch in self._batches("train", sources.train, encode, receive):
                self._deal(batch)
        for source in (*sources.train, *sources.heldout):
            source.check_unchanged()

    def _deal(self, batch: AnyBatch) -> None:
        self.duplicates += sum(digest in self._known for digest in batch.digests)
        fraction = self._job.fraction
        if fraction is None:
            self._take("train", batch)
            return
        mask = heldout_mask(batch.digests, fraction=fraction, seed=self._job.seed)
        self._take("train", batch.select(~mask))
        self._take("heldout", batch.select(mask))

    def _batches(
        self,
        name: str,
        sources: list[Source],
        encode: Encode[Document, Any],
        receive: Callable[[list[Any], Any], AnyBatch],
    ) -> Iterator[AnyBatch]:
        tallies = [Tally(self._job.config.on_bad_line, self._advance) for _ in sources]
        intake = self.intakes.setdefault(name, Intake(tallies))
        pairs = zip(sources, tallies, strict=True)
        stream = itertools.chain.from_iterable(source.documents(tally) for source, tally in pairs)
        for documents, encoded in encode(stream):
            batch = receive(documents, encoded)
            full = batch.full
            intake.empty += int((~full).sum())
            yield batch if full.all() else batch.select(full)

    def _advance(self, num_bytes: int) -> None:
        self.read_bytes += num_bytes
        self._draw(num_bytes)

    def check_full(self, documents: dict[str, int]) -> None:
        """Raise `DataError` for a split without documents; says why there are none, and what to do."""
        for name, count in documents.items():
            if not count:
                raise DataError(self._empty(name, sum(documents.values())))

    def _empty(self, name: str, total: int) -> str:
        fraction = self._job.fraction
        if fraction is not None and total:
            return (
                f"data.heldout.fraction: {fraction} of {total} documents leaves {name} empty; change the "
                "fraction or the seed, or give more documents (data.train.*.document: line or paragraph)"
            )
        tallies = self.intakes["train" if fraction is not None else name].tallies
        read, bad = sum(tally.documents for tally in tallies), sum(tally.bad_lines for tally in tallies)
        return f"data.{name}: there is no text: {read} documents, all empty, and {bad} bad lines left out"

    def scaled(self, written_bytes: int) -> int:
        """What all sources come to in bytes, when the part that was read came to `written_bytes`."""
        total = self._job.num_bytes or 0
        if not written_bytes:
            return total
        return max(written_bytes, written_bytes * total // max(self.read_bytes, 1))
