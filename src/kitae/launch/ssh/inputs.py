"""Files that a recipe reads, and where they lie on the head node: under the hash of what they hold.

A path that is absolute and leads nowhere here may lead somewhere there.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from kitae.data.hashing import HashCache
from kitae.errors import RecipeError
from kitae.recipe.base import Section
from kitae.recipe.sources import ModelConfig, TokenizerConfig
from kitae.stages.files import key_of

Files = dict[str, Path]
"""By their names in a folder there."""
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".gguf", ".onnx", ".index.json")


@dataclass
class Inputs:
    """Those of one recipe."""

    hashes: HashCache
    folder: str
    """Of the head node."""
    run_there: Callable[[Path], str | None] = lambda path: None
    """Where a run lies there, if it is one of that head node."""
    folders: dict[str, dict[str, str]] = field(default_factory=dict)
    """Folder there -> name -> hash."""
    objects: dict[str, Path] = field(default_factory=dict)
    """Hash -> file."""
    only_there: list[str] = field(default_factory=list)
    """Paths that lead nowhere here."""

    def place(self, section: Section, name: str, value: str) -> str:
        """Where a path of the recipe leads there. Raises `RecipeError` where it leads nowhere."""
        path = Path(value)
        there = self.run_there(path) if (type(section), name) == (ModelConfig, "run") else None
        if there is not None:
            return there
        if not path.exists() and not glob.has_magic(value):
            self.only_there.append(value)
            return value
        files, tail = _COLLECTORS.get((type(section), name), _any)(path)
        if not files:
            self.only_there.append(value)
            return value
        return str(PurePosixPath(self.folder, self.add("inputs", files), tail))

    def add(self, room: str, files: Files) -> str:
        """A folder of these files, as it is called there, beginning with its room."""
        found = {name: self.hashes.sha256(path) for name, path in files.items()}
        self.objects.update({found[name]: path for name, path in files.items()})
        at = f"{room}/{key_of(found)}"
        self.folders[at] = found
        return at


def _any(path: Path) -> tuple[Files, str]:
    """Files of a path that may be a file, a folder or a pattern; and the way from their folder to it."""
    if path.is_dir():
        return {f"{path.name}/{name}": one for name, one in _below(path).items()}, path.name
    if path.is_file():
        return {path.name: path}, path.name
    plain = path.parts
    first = next(index for index, part in enumerate(plain) if glob.has_magic(part))
    base = Path(*plain[:first])
    matches = (Path(one) for one in sorted(glob.glob(str(path), recursive=True)))  # noqa: PTH207
    return {one.relative_to(base).as_posix(): one for one in matches if one.is_file()}, "/".join(
        plain[first:]
    )


def _below(folder: Path) -> Files:
    """All files that are not hidden."""
    found = {
        path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()
    }
    return {name: path for name, path in found.items() if not any(p.startswith(".") for p in name.split("/"))}


def _model(path: Path) -> tuple[Files, str]:
    """The files of a Hugging Face folder, without folders in it, such as those of earlier steps."""
    return {f"{path.name}/{one.name}": one for one in _top(path)}, path.name


def _tokenizer(path: Path) -> tuple[Files, str]:
    found = (one for one in _top(path) if not one.name.endswith(_WEIGHTS))
    return {f"{path.name}/{one.name}": one for one in found}, path.name


def _top(path: Path) -> Iterator[Path]:
    return (one for one in sorted(path.iterdir()) if one.is_file() and not one.name.startswith("."))


def _run(path: Path) -> tuple[Files, str]:
    """The checkpoint that a run, or a folder in it, means, and the tokenizer of the run."""
    from kitae.checkpoint.resume import find_checkpoint
    from kitae.stages.job import tokenizer_of_run

    tokenizer = tokenizer_of_run(path)
    run = tokenizer.parent
    folders = (tokenizer, find_checkpoint(path, verify=False).path)
    files = {
        f"{run.name}/{one.relative_to(run).as_posix()}": one
        for folder in folders
        for one in _below(folder).values()
    }
    return files, f"{run.name}/{path.relative_to(run).as_posix()}"


_COLLECTORS: dict[tuple[type[Section], str], Callable[[Path], tuple[Files, str]]] = {
    (ModelConfig, "folder"): _model,
    (ModelConfig, "run"): _run,
    (TokenizerConfig, "folder"): _tokenizer,
}
"""What is taken of a path; of others, all that it leads to."""


def refuse_missing(paths: list[str], there: list[str], host: str) -> None:
    """Raise `RecipeError` for paths that lead nowhere, neither here nor there."""
    missing = [path for path in paths if path not in there]
    if missing:
        raise RecipeError(
            f"{', '.join(missing)}: no such file or folder, neither here nor on {host}; a relative path "
            "starts at the recipe's folder"
        )
