"""What is done with a run on a head node: followed, fetched, and any verb of kitae there."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kitae.errors import ClusterError
from kitae.launch.ssh.link import DroppedError, Head, Link, waits
from kitae.launch.ssh.remote import Remote, read_remote
from kitae.launch.ssh.sync import rsync
from kitae.launch.ssh.tasks import failed
from kitae.launch.ssh.there import MARK
from kitae.stages.files import read_json, write_json
from kitae.storage.files import aside_name

Report = Callable[[str], None]

_POSITIONS = "followed.json"
_WEIGHTS = (".safetensors", ".safetensors.index.json")


def head_of(remote: Remote, report: Report) -> Head:
    """The head node of a run, as it was when the run was submitted."""
    return Head(Link(remote.host, report), remote.head_python, remote.folder, remote.shell)


def follow(run: Path, report: Report) -> None:
    """Show what the jobs of a run print until the last one has ended, over as many connections as it takes.

    It goes on where it was left. Raises the error that the run ended with.
    """
    remote = read_remote(run)
    head = head_of(remote, report)
    positions: dict[str, int] = read_json(run / _POSITIONS)

    def words() -> dict[str, object]:
        command = [remote.python, "-m", "kitae.launch.ssh.head", "follow", remote.run, json.dumps(positions)]
        return {"words": command}

    end: dict[str, object] = {"code": 1, "why": "nothing was said about its end"}
    for answer in head.follow(words, "run", variables=remote.variables):
        if "text" in answer:
            for line in answer["text"].splitlines():
                report(line)
            positions[answer["stage"]] = answer["position"]
            write_json(run / _POSITIONS, positions)
        elif answer.get("state"):
            report(f"{remote.host}: {answer['state']}")
        elif "end" in answer:
            end = answer["end"]
    code = int(str(end["code"]))
    if code:
        raise failed(code, f"{remote.host}: {end['why']}")


def run_there(run: Path, words: Sequence[str], report: Report = print) -> int:
    """Run `kitae WORDS` on the head node of a run, show what it prints, and return its exit code.

    The word RUN stands for the run's folder there.
    """
    remote = read_remote(run)
    own = [remote.run if word == "RUN" else word for word in words]
    return head_of(remote, report).pass_through([remote.python, "-m", "kitae", *own], remote.variables)


def output_there(run: Path, words: Sequence[str], report: Report = print) -> str:
    """The same, with its output returned; raises `ClusterError` when it fails there."""
    remote = read_remote(run)
    own = [remote.run if word == "RUN" else word for word in words]
    command = [remote.python, "-m", "kitae", *own]
    with head_of(remote, report).opened("run", words=command, variables=remote.variables) as output:
        for line in output:
            if line.startswith(MARK.encode()):
                break
        return output.read().decode(errors="replace")


# ---- fetching


def fetch(run: Path, report: Report, *, checkpoint: bool = False) -> int:
    """Bring what a run has there that is new to its folder here; how many files."""
    remote = read_remote(run)
    head = head_of(remote, report)
    place = f"runs/{remote.name}"
    listed = _checked(head.ask("listing", run=place, checkpoint=checkpoint)["files"], remote.host)
    pauses = waits()
    new = _new(run, listed)
    count = len(new)
    if new:
        report(f"ssh: {count} files, {sum(size for _, size, _ in new):,} bytes from {remote.host}")
    bring = _by_rsync if remote.rsync and shutil.which("rsync") else _by_tar
    while new:
        try:
            bring(head, place, run, [name for name, _, _ in new])
            break
        except DroppedError as drop:
            head.tell(drop, next(pauses))
            new = _new(run, listed)
    _remove_others(run / "export", {name for name, _, _ in listed}, run)
    return count


def _checked(listed: Sequence[Sequence[Any]], host: str) -> list[tuple[str, int, int]]:
    """Files that lie below the run's folder. Raises `ClusterError` for a name that leads out of it."""
    for name, *_ in listed:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ClusterError(f"{host} names a file outside of the run: {name}; nothing was fetched")
    return [(str(name), int(size), int(seconds)) for name, size, seconds in listed]


def _new(run: Path, listed: Sequence[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    return [one for one in listed if _identity(run / one[0]) != (one[1], one[2])]


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, int(found.st_mtime)


def _by_rsync(head: Head, place: str, run: Path, names: Sequence[str]) -> None:
    options = ["--times", "--partial-dir=.kitae-partial", "--from0", "--files-from=-"]
    listed = "".join(f"{name}\0" for name in names).encode()
    rsync(head, options, [f"{head.link.host}:{head.folder}/{place}/", f"{run}/"], listed)


def _by_tar(head: Head, place: str, run: Path, names: Sequence[str]) -> None:
    with head.opened("send", run=place, files=list(names)) as output:
        for line in output:
            if line.startswith(MARK.encode()):
                break
        try:
            with tarfile.open(mode="r|", fileobj=output) as archive:
                for member in (one for one in archive if one.name in names):
                    _take(archive, member, run / member.name)
        except tarfile.ReadError as error:
            raise DroppedError(f"the stream ended early: {error}") from None


def _take(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = archive.extractfile(member)
    assert content is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    part = aside_name(path, "tmp")
    try:
        with part.open("wb") as file:
            shutil.copyfileobj(content, file, 1 << 20)
        os.utime(part, (member.mtime, member.mtime))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _remove_others(folder: Path, listed: set[str], run: Path) -> None:
    """Of an export that was made anew, remove weights that the new one no longer has."""
    for path in folder.rglob("*") if any(name.startswith("export/") for name in listed) else ():
        if path.name.endswith(_WEIGHTS) and path.relative_to(run).as_posix() not in listed:
            path.unlink()
