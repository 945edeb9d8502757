"""From weights of any format to another: streamed, proven, and there as a whole or not at all.

The result is made in a hidden folder beside its place, read back and proven there, and then renamed. One that
was interrupted (Ctrl-C, kill -9, a full disk, a power cut) leaves that folder with a journal of the tensors
that are on the disk. The same conversion takes the folder over, reads from the source only what is missing,
and proves all of the result. "The same" is one whose result follows from the same: files of the source,
options, version of kitae. Another one to the same place removes what is left and starts afresh.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kitae
from kitae.checkpoint.convert_home import Report, begun, differences, held_bytes, home_of
from kitae.checkpoint.convert_options import Options, Proof, decide
from kitae.checkpoint.convert_proof import prove
from kitae.checkpoint.convert_record import RECORD, Record, changes, digest, earlier, sizes, stamps
from kitae.checkpoint.convert_targets import WRITERS, Conversion, Result
from kitae.checkpoint.journal import Journal
from kitae.checkpoint.reading import reading
from kitae.checkpoint.wrapped import Counting
from kitae.errors import KitaeError, WeightsError
from kitae.storage.disk import check_space, free_bytes, storage_errors
from kitae.storage.files import sync, sync_all
from kitae.storage.folders import sweep

LEVELS: tuple[Proof, ...] = ("none", "values", "logits")
"""Of proofs; each holds those before it."""


def convert(source: Path, target: Path, options: Options, report: Report = print) -> Record | None:
    """Convert what lies at `source` into the new folder `target`; its record, or None for a dry run.

    What was found and decided is said to `report`. An earlier complete result of the same conversion is kept.
    Raises WeightsError for a source or a target that is not as it must be, RecipeError for flags that
    contradict it, StorageError when the disk does not take it, ProofError when the result is not right.
    """
    with reading(source):
        conversion, reasons = decide(source, options)
    opened, notes = conversion.opened, conversion.model.notes
    for line in (f"{opened.path}: {opened.title}", *(f"note: {note}" for note in notes), *reasons):
        report(line)
    # Where links lead to: no folder can be renamed onto a link.
    work = _Work(Path(os.path.realpath(target)), conversion, _made(conversion, options), options, report)
    with storage_errors(work.target):
        if options.dry_run:
            work.show()
            return None
        left = begun(work.target, work.made, report)
        before = earlier(work.target, work.made)
        if before is not None:
            sweep(work.target.parent, work.target.name, spare_living=True)
    return work.do(left) if before is None else work.prove_more(before)


def _made(conversion: Conversion, options: Options) -> dict[str, Any]:
    """All that the result follows from."""
    opened, form = conversion.opened, conversion.format
    return {
        "kitae": kitae.__version__,
        "source": str(opened.path.absolute()),
        "source format": opened.kind,
        "source files": stamps(opened.files),
        "config": digest(conversion.config),
        "generation config": digest(conversion.generation_config),
        "tokenizer": None if options.tokenizer is None else str(options.tokenizer.absolute()),
        "to": conversion.target,
        "dtype": options.dtype,
        **({} if form is None else {**vars(form), "xser": conversion.xser}),
    }


@dataclass(frozen=True)
class _Work:
    """A conversion at work."""

    target: Path
    conversion: Conversion
    made: Mapping[str, Any]
    options: Options
    report: Report

    @property
    def needed_bytes(self) -> int:
        """What the result takes."""
        return WRITERS[self.conversion.target].needed_bytes(self.conversion)

    @property
    def checked(self) -> bool:
        """Whether values are looked at when they are read."""
        return self.options.proof != "none"

    @property
    def tensors(self) -> int:
        """How many there are to write."""
        sources = (self.conversion.due, *self.conversion.moments.values())
        return sum(len(source.tensors()) for source in sources)

    def show(self) -> None:
        """Say what would be written; StorageError when it does not fit."""
        for line in WRITERS[self.conversion.target].listing(self.conversion):
            self.report(line)
        if earlier(self.target, self.made) is not None:
            self.report(f"{self.target} is already the complete result of this conversion")
            return
        left = [one for one, differing in differences(self.target, self.made).items() if not differing]
        held, free = held_bytes(left), free_bytes(self.target)
        if held:
            self.report(f"{held:,} bytes are there, from an interrupted conversion that goes on")
        room = "unknown" if free is None else f"{free:,} bytes"
        self.report(f"{self.target} needs {self.needed_bytes:,} bytes; free are {room}")
        check_space(self.target, self.needed_bytes - held)

    def do(self, left: Sequence[Path]) -> Record:
        """Write what is not in a folder that was left, prove all, and publish."""
        needed = self.needed_bytes
        with (
            _told_as(self.target),
            storage_errors(self.target, needed),
            home_of(self.target, self.made, left, self.tensors, self.report, checked=self.checked) as journal,
        ):
            check_space(self.target, needed - held_bytes([journal.folder]))
            staged = journal.folder / self.target.name
            with self._from_one_source():
                if not journal.complete:
                    self._write(staged, journal)
                proof = self._prove(staged, self.options.proof)
            record = Record(self.made, proof, sizes(staged))
            (staged / RECORD).write_bytes(record.encode())
            published = _publish(staged, self.target)
        if not published:
            return self._made_meanwhile()
        total = sum(record.result.values())
        self.report(f"{self.target}: {total:,} bytes in {len(record.result)} files")
        return record

    @contextmanager
    def _from_one_source(self) -> Iterator[None]:
        """Raise WeightsError when the source changes meanwhile: the result would mix two, or lack one."""
        try:
            yield
        except (KitaeError, OSError):
            self._require_unchanged()
            raise
        self._require_unchanged()

    def _require_unchanged(self) -> None:
        before = {"files": self.made["source files"]}
        found = changes(before, {"files": stamps(self.conversion.opened.files)})
        if found:
            raise WeightsError(
                f"{self.conversion.opened.path} was changed by somebody else while it was converted "
                f"({found[0]}); run it again when nothing writes there"
            )

    def _made_meanwhile(self) -> Record:
        """What somebody else has put in the place, which must be the result of the same conversion."""
        before = earlier(self.target, self.made)
        if before is None:
            raise WeightsError(f"{self.target} was in use for a moment; run it again")
        return self.prove_more(before)

    def prove_more(self, before: Record) -> Record:
        """Keep an earlier result; prove it as far as is asked now and was not then."""
        self.report(f"{self.target} is already the complete result of this conversion: skipped")
        asked, done = self.options.proof, before.proof["level"]
        if LEVELS.index(asked) <= LEVELS.index(done):
            return before
        self.report(f"proof: {done} then, {asked} now")
        record = Record(before.made, self._prove(self.target, asked), before.result)
        record.write(self.target)
        return record

    def _write(self, staged: Path, journal: Journal) -> None:
        opened = self.conversion.opened
        scratch = journal.folder / "tokenizer"
        scratch.mkdir(exist_ok=True)
        tokenizer = self.options.tokenizer
        if tokenizer is None and opened.tokenizer is not None:
            tokenizer = opened.tokenizer(scratch)
        source = Counting(self.conversion.due, used=journal.done(), finite=self.checked, report=self.report)
        result = Result(source, staged, tokenizer, journal)
        WRITERS[self.conversion.target].write(self.conversion, result)
        source.check()
        sync_all([staged, *staged.rglob("*"), journal.folder])
        journal.finish()

    def _prove(self, folder: Path, level: Proof) -> dict[str, Any]:
        if level == "none":
            self.report("proof: none, as --proof says; every source tensor was used once")
            return {"level": level}
        return {
            "level": level,
            **prove(self.conversion, folder, logits=level == "logits", report=self.report),
        }


@contextmanager
def _told_as(target: Path) -> Iterator[None]:
    """Name the place that was asked for in errors, not the hidden folder beside it."""
    hidden = re.escape(str(target.parent / f".tmp-{target.name}-")) + r"\d+-[0-9a-f]{8}"
    try:
        yield
    except KitaeError as error:
        told = re.sub(f"{hidden}(/{re.escape(target.name)})?", lambda _: str(target), str(error))
        raise type(error)(told) from error


def _publish(staged: Path, target: Path) -> bool:
    """Sync the record, then rename; False when somebody else has made the target meanwhile."""
    sync_all([staged / RECORD, staged])
    try:
        staged.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            return False
        raise
    sync(target.parent)
    return True
