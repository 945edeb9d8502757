"""What is done on the head node by a Python of its own: this text travels over ssh's standard input.

It imports the standard library alone. The request is a line of JSON, after which content may follow; each
answer is a line of JSON behind MARK, so that what a login shell prints is not taken for one.

A folder there holds `objects/` (files by SHA-256), `inputs/` and `code/` (folders of them, by the hash of
what they hold), `environments/`, `tasks/` (what goes on when the connection drops), `secrets/`, `recipes/`,
`runs/` and `cache/`.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

MARK = "kitae:"
INCOMING = Path("objects", "incoming")
SPARE_BYTES = 64 << 20
"""Left free on the disk, for what is small and not counted."""
LOOK_S, ALIVE_S = 0.3, 5.0
KEPT = ("export", "logs", "evaluations", "devices", "tokenizer", "tensorboard", "wandb", "slurm")
"""Folders of a run that are fetched; of its files at the top, all but those of `NOT_KEPT`."""
NOT_KEPT = ("submitted.yaml", "slurm.json", "slurm-without.json", "remote.json")
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)

Request = dict[str, Any]


class RefusedError(Exception):
    """What a person is told; `kind` is `storage` or `cluster`."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def say(**answer: object) -> None:
    """Answer."""
    print(MARK + json.dumps(answer), flush=True)


# ---- objects


def lacking(request: Request) -> None:
    """Which of the objects, hash -> bytes, are not here; a `RefusedError` when there is no room for them."""
    wanted = request["objects"]
    _adopt(wanted)
    missing = [name for name in wanted if not Path("objects", name).exists()]
    needed = sum(wanted[name] for name in missing)
    needed -= sum(path.stat().st_size for path in INCOMING.rglob("*") if path.is_file())
    free = shutil.disk_usage(".").free
    if missing and free < needed + SPARE_BYTES:
        raise RefusedError(
            "storage",
            f"the disk of {Path.cwd()} there is full: needed are {needed:,} bytes, free are {free:,}; free "
            "some space there, or set target.folder to a folder on a larger disk",
        )
    say(lacking=missing)


def receive(request: Request) -> None:
    """Take objects from a tar stream, as far as it goes."""
    INCOMING.mkdir(parents=True, exist_ok=True)
    with tarfile.open(mode="r|", fileobj=sys.stdin.buffer) as archive:
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None
            part = INCOMING / f".{member.name}.{os.getpid()}"
            try:
                with part.open("wb") as file:
                    shutil.copyfileobj(content, file, 1 << 20)
                part.replace(INCOMING / member.name)
            finally:
                part.unlink(missing_ok=True)
    say(received=True)


def _adopt(wanted: dict[str, int]) -> None:
    """Take what has come whole into the objects."""
    INCOMING.mkdir(parents=True, exist_ok=True)
    for path in INCOMING.iterdir():
        with suppress(FileNotFoundError):  # somebody else does the same
            if path.name in wanted and path.is_file() and path.stat().st_size == wanted[path.name]:
                if _sha256(path) == path.name:
                    path.chmod(0o444)
                    path.replace(Path("objects", path.name))
                else:
                    path.unlink()


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def place(request: Request) -> None:
    """Make folders of objects; each appears whole."""
    for at, files in request["folders"].items():
        final = Path(at)
        if final.exists():
            continue
        work = final.with_name(f".{final.name}-{secrets.token_hex(4)}")
        for name, object_name in files.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            _link(Path("objects", object_name), work / name)
        with suppress(OSError):
            work.rename(final)
        shutil.rmtree(work, ignore_errors=True)
        if not final.exists():
            raise RefusedError("storage", f"{final.absolute()} cannot be made there")
    say(placed=True)


def _link(old: Path, new: Path) -> None:
    try:
        os.link(old, new)
    except OSError as error:
        if error.errno in _DISK[:3]:
            raise
        shutil.copyfile(old, new)  # some file systems have no links between folders


def exists(request: Request) -> None:
    """Which of these paths and patterns lead to something here."""
    found = [one for one in request["paths"] if Path(one).exists() or glob.glob(one, recursive=True)]  # noqa: PTH207
    say(exist=found)


# ---- tasks, which outlive the connection


def start(request: Request) -> None:
    """Begin a program as a task, unless somebody, perhaps over an earlier connection, is at it."""
    home = Path("tasks", request["task"])
    home.mkdir(parents=True, exist_ok=True)
    lock = os.open(home / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(begun=False)
        return
    for name in ("output", "result"):
        (home / name).unlink(missing_ok=True)
    say(begun=True)
    if os.fork() == 0:
        _work(home, request)


def _work(home: Path, request: Request) -> None:
    """Of the process that goes on alone: run the program, and leave its exit code."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    output = os.open(home / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for new, old in enumerate((null, output, output)):
        os.dup2(old, new)
    code = 1
    try:
        code = subprocess.run(request["words"], env={**os.environ, **request["variables"]}).returncode
    except OSError as error:
        print(f"error: {request['words'][0]}: {error.strerror}", flush=True)
    finally:
        part = home / "result.part"
        part.write_text(str(code))
        part.replace(home / "result")
        os._exit(0)


def follow(request: Request) -> None:
    """Show what a task prints, from a position on, until it has ended; then its exit code."""
    home, position = Path("tasks", request["task"]), request["position"]
    told = time.monotonic()
    while True:
        over = (home / "result").exists() or not _held(home / "lock")
        text, position = read_lines(home / "output", position)
        if text or time.monotonic() - told > ALIVE_S:
            say(text=text, position=position)
            told = time.monotonic()
        if over:
            break
        time.sleep(LOOK_S)
    if not (home / "result").exists():
        raise RefusedError(
            "cluster", "what was begun on the head node was killed there; give the same command again"
        )
    say(code=int((home / "result").read_text()))


def _held(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def read_lines(path: Path, position: int) -> tuple[str, int]:
    """The whole lines from a position on, and the position behind them."""
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) < position:
                position = 0  # another file since
            file.seek(position)
            content = file.read()
    except FileNotFoundError:
        return "", position
    whole = content[: content.rfind(b"\n") + 1]
    return whole.decode(errors="replace"), position + len(whole)


# ---- secrets, runs and what comes back


def hide(request: Request) -> None:
    """Keep a text where only this user can read it, until the submission takes it; one that is empty goes."""
    home = Path("secrets", "new")
    for folder in (home.parent, home):
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
    path = home / request["name"]
    text = sys.stdin.buffer.read(request["size"])
    if not text:
        path.unlink(missing_ok=True)
    else:
        part = home / f".{secrets.token_hex(4)}"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
        part.replace(path)
    say(hidden=True)


def keep(request: Request) -> None:
    """Write small files, each as a whole."""
    for name, text in request["files"].items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    say(kept=True)


def listing(request: Request) -> None:
    """Files of a run that are fetched: name, bytes, time of change in seconds."""
    run = Path(request["run"])
    if not run.is_dir():
        raise RefusedError("cluster", f"there is no {run.absolute()} there; was the run removed?")
    found = []
    for path in _fetched(run, request["checkpoint"]):
        with suppress(FileNotFoundError):
            stat = path.stat()
            found.append([path.relative_to(run).as_posix(), stat.st_size, int(stat.st_mtime)])
    say(files=found)


def _fetched(run: Path, checkpoint: bool) -> Iterator[Path]:
    yield from (
        path for path in run.iterdir() if path.is_file() and path.name not in NOT_KEPT and _shown(path)
    )
    for name in KEPT:
        yield from (path for path in sorted((run / name).rglob("*")) if _shown(path))
    steps = sorted((run / "checkpoints").glob("step-*"))
    if checkpoint and steps:
        yield from (path for path in sorted(steps[-1].rglob("*")) if path.is_file())


def _shown(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".")


def send(request: Request) -> None:
    """Files of a run as a tar stream, behind one answer."""
    say(follows="tar")
    run = Path(request["run"])
    with tarfile.open(mode="w|", fileobj=sys.stdout.buffer) as archive:
        for name in request["files"]:
            with suppress(FileNotFoundError), (run / name).open("rb") as file:
                archive.addfile(archive.gettarinfo(arcname=name, fileobj=file), file)


def run_program(request: Request) -> None:
    """Become a program, whose output follows one answer."""
    say(follows="output")
    os.environ.update(request["variables"])
    os.execvp(request["words"][0], request["words"])


VERBS: dict[str, Callable[[Request], None]] = {
    "lacking": lacking,
    "receive": receive,
    "place": place,
    "exists": exists,
    "start": start,
    "follow": follow,
    "hide": hide,
    "keep": keep,
    "listing": listing,
    "send": send,
    "run": run_program,
}


def _kind(error: OSError) -> str:
    return "storage" if error.errno in _DISK else "cluster"


def main() -> None:
    """Do what is asked for."""
    request = json.loads(sys.stdin.buffer.readline())
    os.environ.update(request["environment"])
    try:
        os.chdir(request["folder"])
        VERBS[request["verb"]](request)
    except RefusedError as failure:
        say(error=str(failure), kind=failure.kind)
    except BrokenPipeError:  # the connection is gone
        os._exit(1)
    except OSError as error:
        say(error=f"{request['folder']} there: {error}", kind=_kind(error))


if __name__ == "__main__":
    main()
