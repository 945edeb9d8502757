"""What a source of the recipe stands for: the files behind a path, or a data set of the Hub."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kitae.data.arrow import is_saved_dataset, saved_files
from kitae.data.documents import Document, Fields, Tally, did_you_mean
from kitae.data.formats import FORMATS, format_of, supported_endings
from kitae.data.hashing import HashCache, file_identity
from kitae.data.hub import HubSource
from kitae.errors import DataError
from kitae.recipe.sources import SourceConfig


class Source(Protocol):
    """Where documents come from."""

    @property
    def config(self) -> SourceConfig:
        """The source as the recipe has it."""
        ...

    @property
    def num_bytes(self) -> int | None:
        """Bytes on disk; None when unknown."""
        ...

    def identity(self, hashes: HashCache) -> dict[str, Any]:
        """What the documents depend on: contents and options, not names."""
        ...

    def describe(self, hashes: HashCache) -> dict[str, Any]:
        """The source for the data card."""
        ...

    def documents(self, tally: Tally) -> Iterator[Document]:
        """The documents in their order; raises `DataError`."""
        ...

    def check_unchanged(self) -> None:
        """Raise `DataError` when the source changed since it was opened."""
        ...

    def without_effect(self) -> list[str]:
        """Fields that the recipe sets and that change nothing here."""
        ...


@dataclass(frozen=True)
class SourceFile:
    """One file of a source; `name` is how messages call it, `stamp` its identity when it was found."""

    path: Path
    name: str
    format: str
    stamp: list[int]


@dataclass(frozen=True)
class FileSource:
    """A source made of files, in their order."""

    config: SourceConfig
    files: tuple[SourceFile, ...]
    fields: Fields = ()
    """What is read of each record beside its text."""

    @property
    def num_bytes(self) -> int | None:
        """Bytes on disk of all files."""
        return sum(file.stamp[0] for file in self.files)

    def identity(self, hashes: HashCache) -> dict[str, Any]:
        """Format, contents and the options that matter for the format, file by file."""
        return {"files": [self._file_identity(file, hashes) for file in self.files]}

    def _file_identity(self, file: SourceFile, hashes: HashCache) -> list[Any]:
        options = {name: getattr(self.config, name) for name in FORMATS[file.format].options}
        if self.fields:
            options["fields"] = [field.name for field in self.fields]
        # The ending decides about decompression, so it belongs to the content.
        return [file.format, file.path.suffix, options, hashes.sha256(file.path)]

    def describe(self, hashes: HashCache) -> dict[str, Any]:
        """Path as the recipe says it, and name, size and hash of each file."""
        files = [
            {
                "name": file.name,
                "format": file.format,
                "bytes": file.stamp[0],
                "sha256": hashes.sha256(file.path),
            }
            for file in self.files
        ]
        return {"path": self.config.path, "files": files}

    def documents(self, tally: Tally) -> Iterator[Document]:
        """The documents of all files."""
        for file in self.files:
            read = FORMATS[file.format].read
            for document in read(file.path, file.name, self.config, tally, self.fields):
                tally.documents += 1
                yield document

    def check_unchanged(self) -> None:
        """Compare each file's size, time and inode with what they were."""
        for file in self.files:
            if file_identity(file.path) != file.stamp:
                raise DataError(
                    f"{file.name}: changed while it was being read; start again when it is complete"
                )

    def without_effect(self) -> list[str]:
        """Reader options that are set, but belong to formats that none of the files has."""
        formats = {file.format for file in self.files}
        used = {option for name in formats for option in FORMATS[name].options}
        used |= {"split"} if "datasets" in formats else set()
        return [
            name
            for name in ("document", "text_field", "split")
            if name in self.config.model_fields_set - used
        ]


@dataclass(frozen=True)
class Sources:
    """The sources of a job; `heldout` is empty when held-out text is drawn from `train`, or not wanted."""

    train: list[Source]
    heldout: list[Source]

    @property
    def num_bytes(self) -> int | None:
        """Bytes on disk of all sources; None when unknown."""
        sizes = [source.num_bytes for source in (*self.train, *self.heldout)]
        return None if None in sizes else sum(size or 0 for size in sizes)


def open_source(config: SourceConfig, base: Path, fields: Fields = ()) -> Source:
    """Find what a source stands for; paths are relative to `base`. Raises `DataError`.

    Its documents carry `fields` beside their text.
    """
    if config.path is None:
        return HubSource(config, fields)
    files = [
        SourceFile(path, _shown(path, base), kind, file_identity(path)) for path, kind in _find(config, base)
    ]
    if not files:
        raise DataError(f"{config.path}: {_nothing_in(base / Path(config.path).expanduser(), config)}")
    return FileSource(config, tuple(files), tuple(fields))


def _nothing_in(folder: Path, config: SourceConfig) -> str:
    """Why no file of a folder is read."""
    kinds = {format_of(path) for path in folder.rglob("*")}
    named = [name for name, entry in FORMATS.items() if entry.when_named and name in kinds]
    if config.format == "auto" and named:
        return f"files of format {named[0]} in a folder are read when asked for; write format: {named[0]}"
    return f"no file here has an ending that is read: {supported_endings()}"


def _shown(path: Path, base: Path) -> str:
    return str(path.relative_to(base)) if path.is_relative_to(base) else str(path)


def _find(config: SourceConfig, base: Path) -> Sequence[tuple[Path, str]]:
    assert config.path is not None
    path = base / Path(config.path).expanduser()
    if path.is_dir():
        return _in_folder(path, config)
    if path.exists():
        if not path.is_file():
            raise DataError(f"{path}: neither a file nor a folder; write its content into a file first")
        return [(path, _kind_of(path, config))]
    if not glob.has_magic(config.path):
        raise DataError(_missing(path, config.path))
    matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True))  # noqa: PTH207
    files = [match for match in matches if match.is_file()]
    if not files:
        looked = "" if Path(config.path).is_absolute() else f" (looked from {base})"
        raise DataError(f"{config.path}: no file matches{looked}")
    return [(file, _kind_of(file, config)) for file in files]


def _missing(path: Path, wanted: str) -> str:
    if path.is_symlink():
        return f"{path}: a link that leads nowhere; mend it, or name another file"
    siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    hint = f"; {did_you_mean(path.name, siblings)}" if siblings else ""
    looked = "" if wanted == str(path) else f" (looked for {path})"
    return f"{wanted}: no such file or folder{looked}{hint}"


def _kind_of(path: Path, config: SourceConfig) -> str:
    kind = format_of(path) if config.format == "auto" else config.format
    if kind is None:
        raise DataError(
            f"{path}: the ending is none of {supported_endings()}; set format, or narrow the path"
        )
    return kind


def _in_folder(folder: Path, config: SourceConfig) -> Sequence[tuple[Path, str]]:
    """Every supported file below that is not hidden, by relative name; or a saved data set's files."""
    assert config.path is not None
    if config.format in ("auto", "datasets") and is_saved_dataset(folder):
        return [(path, "datasets") for path in saved_files(folder, config, config.path)]
    if config.format == "datasets":
        raise DataError(f"{config.path}: not a folder that datasets.save_to_disk wrote (no state.json in it)")
    found = []
    for path in sorted(folder.rglob("*"), key=lambda entry: entry.relative_to(folder).as_posix()):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        kind = format_of(path)
        if kind and not hidden and path.is_symlink() and not path.exists():
            raise DataError(_missing(path, str(path)))
        if (
            kind
            and (kind == config.format or (config.format == "auto" and not FORMATS[kind].when_named))
            and path.is_file()
            and not hidden
        ):
            found.append((path, kind))
    return found
