"""Brings objects to the head node, only what lacks: by rsync where both sides have it, else as a stream."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from kitae.errors import StorageError
from kitae.launch.ssh.link import DroppedError, Head, waits
from kitae.launch.ssh.there import INCOMING

Objects = Mapping[str, Path]
"""SHA-256 -> file."""
_DROPPED_CODES = (10, 12, 30, 35, 255, -9, -15)
"""Of rsync(1): errors in socket or protocol stream, time-outs, and what ssh ended with."""
_WHOLE_TRIES = 2


def bring(head: Head, objects: Objects, rsync: bool) -> int:
    """Bring those that lack there; how many bytes. What came before a drop is not brought again."""
    sizes = {name: path.stat().st_size for name, path in objects.items()}
    send = _rsync if rsync and shutil.which("rsync") is not None else _tar
    brought = whole = 0
    pauses = waits()
    while lacking := head.ask("lacking", objects=sizes)["lacking"]:
        if whole == _WHOLE_TRIES:
            names = ", ".join(str(objects[name]) for name in lacking[:3])
            raise StorageError(
                f"{names} does not arrive whole on {head.link.host}; does it change meanwhile?"
            )
        total = sum(sizes[name] for name in lacking)
        brought = brought or total
        head.link.report(f"ssh: {len(lacking)} files, {total:,} bytes to {head.link.host}")
        try:
            send(head, {name: objects[name] for name in lacking})
            whole += 1
        except DroppedError as drop:
            head.tell(drop, next(pauses))
    return brought


def _tar(head: Head, objects: Objects) -> None:
    def write(stdin: IO[bytes]) -> None:
        with tarfile.open(mode="w|", fileobj=stdin) as archive:
            for name, path in objects.items():
                with path.open("rb") as file:
                    archive.addfile(archive.gettarinfo(arcname=name, fileobj=file), file)

    for _ in head.answers("receive", write):
        pass


def _rsync(head: Head, objects: Objects) -> None:
    """By way of links with the names of the hashes."""
    with tempfile.TemporaryDirectory(prefix="kitae-") as temporary:
        for name, path in objects.items():
            Path(temporary, name).symlink_to(path.absolute())
        options = ["--copy-links", "--partial-dir=.partial", "--times", "--chmod=F644"]
        rsync(head, options, [f"{temporary}/", address(head, str(INCOMING))])


def address(head: Head, path: str) -> str:
    """A folder below that of the head node, as rsync takes it."""
    return f"{head.link.host}:{head.folder}/{path}/"


def rsync(head: Head, options: Sequence[str], places: Sequence[str], stdin: bytes = b"") -> None:
    """Run rsync. Raises `DroppedError` when the connection ended, `StorageError` for what the disks say."""
    words = ["rsync", "--recursive", "--protect-args", "--timeout=120", *options, *places]
    environment = {**os.environ, "RSYNC_RSH": shlex.join(head.link.ssh)}
    done = subprocess.run(words, env=environment, input=stdin, capture_output=True)
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode in _DROPPED_CODES and "No space left" not in said:
        head.link.check(said, known=True)
    if done.returncode not in (0, 24):  # 24: a file was gone before it came to it
        last = said.splitlines()[-2:] or [f"code {done.returncode}"]
        raise StorageError(
            f"rsync with {head.link.host}: {'; '.join(last)}; free some space, or check the folder"
        )
