"""A wheel of exactly this kitae: the files that run here, under a name with their hash.

The format is the "Binary distribution format" of packaging.python.org, 1.0; equal files give equal bytes.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata as metadata
import io
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import kitae
from kitae.errors import ClusterError
from kitae.storage.files import replace_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_LEFT_OUT = ("__pycache__",)
_TAGS = "Wheel-Version: 1.0\nGenerator: kitae\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_COMMANDS = "[console_scripts]\nkitae = kitae.__main__:run\n"


def make_wheel(folder: Path, package: Path | None = None) -> Path:
    """The wheel in `folder`, made there if it is not there yet. Raises `ClusterError`, `StorageError`."""
    package = package or Path(kitae.__file__).parent
    files = {f"kitae/{path.relative_to(package).as_posix()}": path.read_bytes() for path in _files(package)}
    needs = requirements(package)
    digest = hashlib.sha256("\n".join(needs).encode())
    for name, content in files.items():
        digest.update(f"\0{name}\0{len(content)}\0".encode() + content)
    version = f"{kitae.__version__}+{digest.hexdigest()[:12]}"
    path = folder / f"kitae-{version}-py3-none-any.whl"
    if not path.exists():
        replace_file(path, _zipped(files, f"kitae-{version}.dist-info", _metadata(version, needs)))
    return path


def _files(package: Path) -> Iterator[Path]:
    for path in sorted(package.rglob("*")):
        if path.is_file() and not any(part in _LEFT_OUT for part in path.parts):
            yield path


def requirements(package: Path) -> list[str]:
    """Lines of metadata that say what kitae needs: of the checkout it lies in, else of the installed one."""
    project = package.parents[1] / "pyproject.toml"
    if project.is_file():
        values = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        if values.get("name") == "kitae":
            return _of_project(values)
    try:
        found = metadata.metadata("kitae")
    except metadata.PackageNotFoundError:
        raise ClusterError(
            f"nothing says what the kitae in {package} needs: it is neither a checkout nor installed; "
            "install it with pip"
        ) from None
    names = ("Requires-Python", "Provides-Extra", "Requires-Dist")
    return [f"{name}: {value}" for name in names for value in found.get_all(name) or ()]


def _of_project(values: Mapping[str, Any]) -> list[str]:
    extras: Mapping[str, Sequence[str]] = values.get("optional-dependencies", {})
    lines = [f"Requires-Python: {values['requires-python']}", *(f"Provides-Extra: {name}" for name in extras)]
    lines += [f"Requires-Dist: {need}" for need in values["dependencies"]]
    for name, needs in extras.items():
        lines += [f"Requires-Dist: {_only_with(need, name)}" for need in needs]
    return lines


def _only_with(need: str, extra: str) -> str:
    plain, _, marker = need.partition(";")
    also = f"({marker.strip()}) and " if marker else ""
    return f'{plain.strip()} ; {also}extra == "{extra}"'


def _metadata(version: str, needs: Sequence[str]) -> str:
    return "\n".join(["Metadata-Version: 2.1", "Name: kitae", f"Version: {version}", *needs, ""])


def _zipped(files: Mapping[str, bytes], info: str, described: str) -> bytes:
    """The archive, with the time of no file in it."""
    also = {"METADATA": described, "WHEEL": _TAGS, "entry_points.txt": _COMMANDS}
    whole = {**files, **{f"{info}/{name}": text.encode() for name, text in also.items()}}
    record = "".join(f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in whole.items())
    whole[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in whole.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
