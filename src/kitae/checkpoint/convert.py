"""From weights of any format to another: streamed, proven, and there as a whole or not at all.

The result is made in a hidden folder beside its place, read back and proven there, and then renamed. One that
was interrupted leaves that folder, which the next conversion to the same place removes; it starts afresh.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kitae
from kitae.checkpoint.convert_options import Options, Proof, decide
from kitae.checkpoint.convert_proof import prove
from kitae.checkpoint.convert_record import RECORD, Record, digest, earlier, sizes, stamps
from kitae.checkpoint.convert_targets import WRITERS, Conversion
from kitae.checkpoint.wrapped import Counting
from kitae.errors import StorageError, WeightsError
from kitae.storage.disk import check_space, free_bytes, storage_errors
from kitae.storage.files import sync, write_synced
from kitae.storage.folders import sweep, temporary_folder

Report = Callable[[str], None]
LEVELS: tuple[Proof, ...] = ("none", "values", "logits")
"""Of proofs; each holds those before it."""


def convert(source: Path, target: Path, options: Options, report: Report = print) -> Record | None:
    """Convert what lies at `source` into the new folder `target`; its record, or None for a dry run.

    What was found and decided is said to `report`. An earlier complete result of the same conversion is kept.
    Raises WeightsError for a source or a target that is not as it must be, RecipeError for flags that
    contradict it, StorageError when the disk does not take it, ProofError when the result is not right.
    """
    conversion, reasons = decide(source, options)
    opened, notes = conversion.opened, conversion.model.notes
    for line in (f"{opened.path}: {opened.title}", *(f"note: {note}" for note in notes), *reasons):
        report(line)
    work = _Work(target.absolute(), conversion, _made(conversion, options), options, report)
    if options.dry_run:
        work.show()
        return None
    for line in sweep(work.target.parent, work.target.name, spare_living=True):
        report(line)
    before = earlier(work.target, work.made)
    return work.do() if before is None else work.prove_more(before)


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

    def show(self) -> None:
        """Say what would be written; StorageError when it does not fit."""
        for line in WRITERS[self.conversion.target].listing(self.conversion):
            self.report(line)
        if earlier(self.target, self.made) is not None:
            self.report(f"{self.target} is already the complete result of this conversion")
            return
        free = free_bytes(self.target)
        room = "unknown" if free is None else f"{free:,} bytes"
        self.report(f"{self.target} needs {self.needed_bytes:,} bytes; free are {room}")
        check_space(self.target, self.needed_bytes)

    def do(self) -> Record:
        """Write, prove and publish."""
        needed = self.needed_bytes
        check_space(self.target, needed)
        with (
            _told_as(self.target),
            storage_errors(self.target, needed),
            temporary_folder(self.target) as home,
        ):
            staged = home / self.target.name
            self._write(staged, home)
            proof = self._prove(staged, self.options.proof)
            record = Record(self.made, proof, sizes(staged))
            write_synced(staged / RECORD, record.encode())
            _publish(staged, self.target)
            shutil.rmtree(home, ignore_errors=True)
        total = sum(record.result.values())
        self.report(f"{self.target}: {total:,} bytes in {len(record.result)} files")
        return record

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

    def _write(self, staged: Path, home: Path) -> None:
        opened, level = self.conversion.opened, self.options.proof
        scratch = home / "tokenizer"
        scratch.mkdir()
        tokenizer = self.options.tokenizer
        if tokenizer is None and opened.tokenizer is not None:
            tokenizer = opened.tokenizer(scratch)
        source = Counting(self.conversion.due, finite=level != "none", report=self.report)
        WRITERS[self.conversion.target].write(self.conversion, source, staged, tokenizer)
        source.check()

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
    try:
        yield
    except StorageError as error:
        hidden = f".tmp-{target.name}-"
        words = [_shown(word, hidden, target) for word in str(error).split(" ")]
        raise StorageError(" ".join(words)) from error


def _shown(word: str, hidden: str, target: Path) -> str:
    return f"{target}{word[-1] if word[-1] in ':;,' else ''}" if hidden in word else word


def _publish(staged: Path, target: Path) -> None:
    """Sync the folders, then rename; WeightsError when somebody else has made the target meanwhile."""
    for path in (staged, *staged.rglob("*")):
        sync(path)
    try:
        staged.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise WeightsError(f"{target} was made by somebody else meanwhile; it is left alone") from error
        raise
    sync(target.parent)
