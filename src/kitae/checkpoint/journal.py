"""Which tensors of a conversion are on the disk, so that an interrupted one goes on where it was.

`journal.jsonl` lies in the hidden folder that the result is made in. Its first line says what the result
follows from; each further line names tensors that are complete, and the files that they lie in with their
sizes by then:

    {"made": {...}}
    {"checked": true, "done": {"weights": ["model.norm.weight", ...]}, "files": {"out/a.safetensors": 8000}}
    {"checked": true, "complete": true}

`checked` says whether the values were looked at when they were read: one who asks for that does not take over
what nobody has looked at. Whoever goes on with what is not complete adds a line, because he writes the small
files again: all is complete only when the last line says so.
A line is appended when those files have been synced, so the journal never says more than the disk holds. A
last line that is torn counts for nothing. No checksums are kept: where a format needs them, what is taken
over is read again. Whoever works in the folder holds a lock on the journal, which the system drops when he
dies.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from kitae.checkpoint.pipe import TensorSink, TensorSource
from kitae.checkpoint.stream import stream
from kitae.storage.files import sync_all, write_synced
from kitae.storage.folders import JOURNAL_NAME
from kitae.storage.lock import exclusive

BATCH_BYTES = 256 << 20
"""So much is written between two lines; what is lost in a kill is about that, and what was not yet synced."""

Done = Mapping[str, frozenset[str]]
"""Kind -> names of tensors."""


@dataclass(frozen=True)
class Noted:
    """What a journal says."""

    made: Mapping[str, Any]
    done: Done
    complete: bool
    """Whether all is written, and only the proof was missing."""
    files: Mapping[str, int]
    """Paths inside the folder, and what each held at least, in bytes."""
    size_bytes: int
    """Without a torn line."""


def read_journal(folder: Path, *, checked: bool = False) -> Noted | None:
    """What the journal in a folder says; None without one, or when files that it names are not whole.

    With `checked`, only of tensors whose values were.
    """
    try:
        head, *rest = _whole_lines((folder / JOURNAL_NAME).read_bytes())
        lines = [body for body, _ in rest if body["checked"] or not checked]
        batches = [line["done"] for line in lines if "done" in line]
        files = {file: size for line in lines for file, size in line.get("files", {}).items()}
        noted = Noted(
            head[0]["made"],
            {kind: frozenset(chain(*(one.get(kind, ()) for one in batches))) for kind in chain(*batches)},
            bool(lines) and lines[-1] is rest[-1][0] and "complete" in lines[-1],
            files,
            sum(size for _, size in (head, *rest)),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return noted if all(_size(folder / file) >= size for file, size in files.items()) else None


def _whole_lines(content: bytes) -> Iterator[tuple[dict[str, Any], int]]:
    """What the lines say, and their sizes in bytes, up to one that is torn."""
    for line in content.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            return
        try:
            yield json.loads(line), len(line)
        except ValueError:
            return


class Journal:
    """The journal of this process, in a folder that is its own as long as it lives."""

    def __init__(self, folder: Path, noted: Noted, lock: ExitStack, checked: bool) -> None:
        self.folder, self._lock, self._checked = folder, lock, checked
        self.made = noted.made
        self.complete = noted.complete
        self._done = dict(noted.done)
        self._written = _Batch()
        self._file = os.open(folder / JOURNAL_NAME, os.O_WRONLY | os.O_APPEND)
        os.ftruncate(self._file, noted.size_bytes)
        self._thread = ThreadPoolExecutor(1)
        self._settled: Future[None] = Future()
        self._settled.set_result(None)

    @classmethod
    def begin(cls, folder: Path, made: Mapping[str, Any], *, checked: bool) -> Journal:
        """Make the folder, with a journal in it that is locked from its first moment."""
        folder.mkdir(parents=True)
        with ExitStack() as lock:
            removed = lock.enter_context(ExitStack())
            removed.callback(shutil.rmtree, folder, ignore_errors=True)
            line = _line({"made": made})
            fresh = folder / f"{JOURNAL_NAME}.new"
            write_synced(fresh, line)
            lock.enter_context(exclusive(fresh))
            fresh.rename(folder / JOURNAL_NAME)
            removed.pop_all()
            return cls(folder, Noted(made, {}, False, {}, len(line)), lock.pop_all(), checked)

    @classmethod
    def take_over(cls, left: Path, folder: Path, *, checked: bool) -> Journal | None:
        """Go on in the folder `left` of a dead process, which becomes `folder`; None where somebody lives.

        Also where the file system has no locks, because there nobody knows.
        """
        with ExitStack() as lock:
            if not lock.enter_context(exclusive(left / JOURNAL_NAME, wait=False)):
                return None
            noted = read_journal(left, checked=checked)
            if noted is None:
                return None
            left.rename(folder)
            journal = cls(folder, noted, lock.pop_all(), checked)
        if not journal.complete:
            journal._append({})
        return journal

    def done(self, kind: str = "weights") -> frozenset[str]:
        """The tensors that are on the disk."""
        return self._done.get(kind, frozenset())

    @property
    def count(self) -> int:
        """How many these are, of all kinds."""
        return sum(map(len, self._done.values()))

    def wrote(self, kind: str, name: str, nbytes: int, files: Iterable[Path]) -> None:
        """Note a tensor that is written; OSError when the disk did not take an earlier one.

        It is synced together with others, by a thread, while the next ones are written.
        """
        self._written.add(kind, name, nbytes, files)
        if self._written.nbytes >= BATCH_BYTES and self._settled.done():
            self._settle()

    def finish(self) -> None:
        """Note that all is written and synced."""
        self._settled.result()
        self._append({"complete": True})
        self.complete = True

    def keep(self) -> bool:
        """Note what was written last, if the disk takes it; whether there is anything to go on with."""
        with suppress(OSError):
            self._settle()
            self._settled.result()
        return self.count > 0

    def close(self) -> None:
        """Let others have the folder."""
        self._thread.shutdown()
        os.close(self._file)
        self._lock.close()

    def _settle(self) -> None:
        self._settled.result()
        batch, self._written = self._written, _Batch()
        self._settled = self._thread.submit(self._sync, batch)

    def _sync(self, batch: _Batch) -> None:
        if not batch.names:
            return
        sync_all({*batch.files, *_folders(batch.files, self.folder)})
        sizes = {file.relative_to(self.folder).as_posix(): _size(file) for file in sorted(batch.files)}
        self._append({"done": batch.names, "files": sizes})
        for kind, done in batch.names.items():
            self._done[kind] = self.done(kind) | frozenset(done)

    def _append(self, body: Mapping[str, Any]) -> None:
        line = _line({"checked": self._checked, **body})
        while line:
            line = line[os.write(self._file, line) :]
        os.fsync(self._file)


class FileSink(TensorSink, Protocol):
    """A sink of which one knows the files."""

    def paths(self, name: str) -> list[Path]:
        """Where a tensor was written to."""
        ...


def go_on(source: TensorSource, sink: FileSink, journal: Journal, kind: str = "weights") -> None:
    """Write the tensors that are not there yet, and note each of them."""
    infos, done = source.tensors(), journal.done(kind)
    stream(
        source,
        sink,
        [name for name in infos if name not in done],
        wrote=lambda name: journal.wrote(kind, name, infos[name].nbytes, sink.paths(name)),
    )


@dataclass
class _Batch:
    """Tensors that are written and not yet synced."""

    names: dict[str, list[str]] = field(default_factory=dict)
    files: set[Path] = field(default_factory=set)
    nbytes: int = 0

    def add(self, kind: str, name: str, nbytes: int, files: Iterable[Path]) -> None:
        self.names.setdefault(kind, []).append(name)
        self.files |= {*files}
        self.nbytes += nbytes


def _folders(files: Collection[Path], top: Path) -> set[Path]:
    """The folders that hold the names of files, up to the one that holds `top`."""
    inner = {file.parent for file in files}
    return {one for parent in inner for one in (parent, *parent.parents) if one.is_relative_to(top.parent)}


def _size(file: Path) -> int:
    """In bytes; -1 when it is not there."""
    try:
        return file.stat().st_size
    except OSError:
        return -1


def _line(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body).encode() + b"\n"
