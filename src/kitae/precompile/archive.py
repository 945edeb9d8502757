"""A cache as one file, for S3 or a shared disk: a tar with a manifest of hashes in front.

`kitae-cache.json` names every file with size and SHA-256; the files follow, entry after entry, so that what
has come is used even when the rest has not. Only entries that are done go in. Nothing that differs from the
manifest is taken.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

from kitae.errors import PrecompileError, StorageError
from kitae.precompile.caches import CACHES, Place
from kitae.precompile.entries import Entry
from kitae.storage.disk import storage_errors
from kitae.storage.files import aside_name, file_sha256, sync
from kitae.storage.folders import publish_folder, sweep, temporary_folder
from kitae.storage.lock import exclusive

FORMAT = 1
MANIFEST = "kitae-cache.json"
_LOCK = ".kitae-import.lock"
_MOST_MANIFEST = 256 << 20
_PIECE = 1 << 20
Report = Callable[[str], None]


@dataclass
class Done:
    """What an export or import has done."""

    entries: int = 0
    size_bytes: int = 0
    left_out: list[str] = field(default_factory=list)
    """Entries that were not taken, with the reason."""


def export(place: Place, to: Path) -> Done:
    """Write every entry that is done into a new file. Raises `PrecompileError`, `StorageError`."""
    done = Done()
    entries = []
    for entry in place.entries():
        if entry.state == "done":
            entries.append(entry)
        else:
            done.left_out.append(f"{entry.label}: {entry.state}")
    if not entries:
        listed = ", ".join(done.left_out[:3]) or "nothing is there"
        raise PrecompileError(f"no entry of {place.root} is done ({listed}): there is nothing to export")
    temporary = aside_name(to, "tmp")
    with storage_errors(to, sum(entry.size_bytes for entry in entries)):
        to.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write(place, entries, temporary, done)
            temporary.replace(to)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync(to.parent)
    return done


def _write(place: Place, entries: Sequence[Entry], path: Path, done: Done) -> None:
    listed = [_listed(entry, place.root) for entry in entries]
    content = json.dumps({"format": FORMAT, "kind": place.cache.kind, "entries": listed}, indent=1).encode()
    with path.open("xb") as file, tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, MANIFEST, len(content), io.BytesIO(content))
        for entry in listed:
            for name, said in entry["files"].items():
                with (place.root / name).open("rb") as source:
                    hashed = _Hashed(source)
                    _add(tar, name, said["bytes"], hashed)
                if hashed.digest.hexdigest() != said["sha256"]:
                    raise PrecompileError(f"{place.root / name} changed while it was written; try again")
                done.size_bytes += said["bytes"]
            done.entries += 1
        tar.close()
        file.flush()
        os.fsync(file.fileno())


def _listed(entry: Entry, root: Path) -> dict[str, Any]:
    files = sorted(path for path in _files(entry) if path.suffix != ".lock")
    return {
        "path": entry.path.relative_to(root).as_posix(),
        "files": {
            path.relative_to(root).as_posix(): {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
            for path in files
        },
    }


def _files(entry: Entry) -> Iterator[Path]:
    found = entry.path.rglob("*") if entry.path.is_dir() else iter([entry.path])
    return (path for path in found if path.is_file() and not path.is_symlink())


def _add(tar: tarfile.TarFile, name: str, size: int, content: IO[bytes] | _Hashed) -> None:
    info = tarfile.TarInfo(name)
    info.size = size
    tar.addfile(info, content)


class _Hashed:
    """Reads, and hashes what it reads."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self.digest = hashlib.sha256()

    def read(self, count: int = -1) -> bytes:
        """So many bytes."""
        piece = self._source.read(count)
        self.digest.update(piece)
        return piece


def import_archive(file: Path, place_of: Callable[[str], Place], report: Report) -> Done:
    """Take what is missing out of an archive; `place_of` says where a kind of cache is here.

    An entry that is done stays as it is. One that failed, or is half-written, is replaced, and that is
    reported. Raises `PrecompileError` for an archive that is none, was changed or ends too early: entries
    that came before stay, and the same command goes on.
    """
    done = Done()
    try:
        with tarfile.open(file, mode="r|") as tar:
            members = iter(tar)
            manifest = _manifest(file, tar, members)
            place = place_of(manifest["kind"])
            waiting = f"another process brings graphs into {place.root}: waiting for it"
            with storage_errors(place.root), exclusive(place.root / _LOCK, waiting=lambda: report(waiting)):
                there = {entry.path: entry for entry in place.entries()}
                for listed in manifest["entries"]:
                    _take(listed, tar, members, place.root, there, done, report)
    except FileNotFoundError:
        raise PrecompileError(f"{file} is not there; get it, or name another file") from None
    except StorageError:  # of the cache
        raise
    except OSError as error:
        raise PrecompileError(
            f"{file} cannot be read ({error.strerror or error}); name another file"
        ) from error
    except (tarfile.TarError, EOFError) as error:
        raise PrecompileError(
            f"{file} cannot be read to its end ({error}); {done.entries} entries are in the cache: get the "
            "file again, and run the same command"
        ) from error
    return done


def _manifest(file: Path, tar: tarfile.TarFile, members: Iterator[tarfile.TarInfo]) -> dict[str, Any]:
    first = next(members, None)
    if first is None or first.name != MANIFEST or not first.isfile() or first.size > _MOST_MANIFEST:
        raise PrecompileError(f"{file} is no archive of kitae cache export: {MANIFEST} is not in front")
    source = tar.extractfile(first)
    assert source is not None, "it is a file"
    try:
        value = json.loads(source.read())
        if value["format"] != FORMAT:
            raise PrecompileError(f"{file}: format {value['format']} is unknown; use the kitae that wrote it")
        if value["kind"] not in CACHES:
            raise PrecompileError(f"{file}: cache {value['kind']!r} is unknown; use the kitae that wrote it")
        for entry in value["entries"]:
            _check_names(file, entry)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PrecompileError(f"{file}: {MANIFEST} cannot be read ({error}); export it again") from error
    found: dict[str, Any] = value
    return found


def _check_names(file: Path, entry: dict[str, Any]) -> None:
    """No file may leave the cache, or its entry. Raises ValueError where sizes and hashes are missing."""
    path, files = PurePosixPath(entry["path"]), entry["files"]
    if not files:
        raise ValueError(f"{path} has no files")
    for name, said in files.items():
        one = PurePosixPath(name)
        inside = one == path or one.is_relative_to(path)
        if one.is_absolute() or ".." in one.parts or not inside or not path.parts:
            raise PrecompileError(f"{file}: {name!r} lies outside of its entry; this archive is not kitae's")
        if not isinstance(said["bytes"], int) or not isinstance(said["sha256"], str):
            raise ValueError(f"size and hash of {name}")


def _take(
    listed: dict[str, Any],
    tar: tarfile.TarFile,
    members: Iterator[tarfile.TarInfo],
    root: Path,
    there: dict[Path, Entry],
    done: Done,
    report: Report,
) -> None:
    """Bring one entry in, unless a good one is there; its files are read in any case."""
    final = root / listed["path"]
    old = there.get(final)
    keep = old is not None and (old.state == "done" or any(lock.holder == "alive" for lock in old.locks))
    if keep:
        for name in listed["files"]:
            _next(members, name)
        done.left_out.append(f"{listed['path']}: there already")
        return
    if old is not None:
        report(f"{old.label}: {old.state} here, replaced by the archive's")
    with storage_errors(final, sum(said["bytes"] for said in listed["files"].values())):
        final.parent.mkdir(parents=True, exist_ok=True)
        sweep(final.parent, final.name, spare_living=True)
        with temporary_folder(final) as temporary:
            for name, said in listed["files"].items():
                done.size_bytes += _extract(tar, _next(members, name), temporary / "x" / name, said)
            whole = temporary / "x" / listed["path"]
            if whole.is_dir():
                publish_folder(whole, final)
            else:
                whole.replace(final)
                sync(final.parent)
            shutil.rmtree(temporary, ignore_errors=True)
    done.entries += 1


def _next(members: Iterator[tarfile.TarInfo], name: str) -> tarfile.TarInfo:
    member = next(members, None)
    if member is None:
        raise EOFError("it ends too early")
    if member.name != name or not member.isfile():
        raise PrecompileError(f"{member.name!r} stands where {name!r} should: this archive was changed")
    return member


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, to: Path, said: dict[str, Any]) -> int:
    """Write one file, synced, if it is what the manifest says; its size."""
    source = tar.extractfile(member)
    assert source is not None, "it is a file"
    to.parent.mkdir(parents=True, exist_ok=True)
    hashed = _Hashed(source)
    with to.open("xb") as file:
        shutil.copyfileobj(hashed, file, _PIECE)
        file.flush()
        os.fsync(file.fileno())
    size = to.stat().st_size
    if size != said["bytes"] or hashed.digest.hexdigest() != said["sha256"]:
        raise PrecompileError(
            f"{member.name} is not what the archive's manifest says: it was changed; export it again, or get "
            "it again"
        )
    return size
