"""The folders of small inputs, made once and kept in the cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kitae.recipe.small_inputs import Input, Pieces, Prose, Reviews, Shards, SmallModel, folder_name
from kitae.small.pieces import tokenizer_files
from kitae.small.reviews import as_lines
from kitae.small.shards import shard
from kitae.small.text import PARTS, prose
from kitae.small.weights import model_files
from kitae.storage.disk import storage_errors
from kitae.storage.files import write_synced
from kitae.storage.folders import publish_folder, sweep, temporary_folder
from kitae.storage.lock import exclusive


def place(cache: Path, one: Input) -> Path:
    """Where an input lies, or would lie."""
    return cache / "small" / folder_name(one)


def make(cache: Path, one: Input) -> Path:
    """The folder of an input; made, unless it is there. Raises `DataError` where a package is missing."""
    folder = place(cache, one)
    with storage_errors(folder), exclusive(folder.with_name(f".{folder.name}.lock")):
        if not folder.is_dir():
            sweep(folder.parent, folder.name)
            with temporary_folder(folder) as temporary:
                for name, content in _FILES[type(one)](one).items():
                    write_synced(temporary / name, content)
                publish_folder(temporary, folder)
    return folder


def _prose(one: Prose) -> dict[str, bytes]:
    return {f"{part}.txt": prose(one.language, part) for part in PARTS}


def _reviews(one: Reviews) -> dict[str, bytes]:
    return {f"{part}.jsonl": as_lines(one, part) for part in PARTS}


def _shards(one: Shards) -> dict[str, bytes]:
    return {f"{part}_training_0.hdf5": shard(one, part) for part in PARTS}


_FILES: dict[type, Callable[..., dict[str, bytes]]] = {
    Pieces: tokenizer_files,
    Prose: _prose,
    Reviews: _reviews,
    Shards: _shards,
    SmallModel: model_files,
}
