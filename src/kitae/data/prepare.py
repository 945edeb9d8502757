"""Prepared data: a folder named by the hash of all that it depends on, made once and then reused.

The key covers the content of the sources (not their names or times), the tokenizer's files, the options
that matter and the format's version; the seed only when documents are held out by a draw. Not the number of
workers.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kitae.data.build import Builder, Job
from kitae.data.card import CARD_FILE, make_card, read_card, summary
from kitae.data.hashing import HashCache
from kitae.data.normalise import unicode_version
from kitae.data.pack import FORMAT
from kitae.data.packed import PackedData
from kitae.data.progress import progress
from kitae.data.sources import Sources, open_source
from kitae.data.special import check_token
from kitae.data.tokenizer import TextTokenizer, tokenizer_fingerprint
from kitae.data.workers import choose_workers
from kitae.recipe.sources import DataConfig
from kitae.storage.disk import storage_errors
from kitae.storage.files import write_synced
from kitae.storage.folders import publish_folder, sweep, temporary_folder
from kitae.storage.lock import exclusive

OPTIONS = ("sequence_length", "bos", "eos", "document_mask", "normalisation", "on_bad_line", "remainder")
Report = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """Packed data that is ready to train on."""

    key: str
    folder: Path
    train: PackedData
    heldout: PackedData | None
    reused: bool
    """Whether the folder was there already, so that nothing was tokenised."""
    card: dict[str, Any]


def data_key(
    config: DataConfig, *, base: Path, tokenizer_fingerprint: str, seed: int, cache: Path | None = None
) -> str:
    """Name of the prepared folder; with `cache`, file hashes are remembered there. Raises `DataError`."""
    hashes = HashCache(cache / "hashes" if cache else None)
    return _key(config, _open_sources(config, base), tokenizer_fingerprint, seed, hashes)


def prepare(
    config: DataConfig,
    *,
    base: Path,
    tokenizer_folder: Path,
    embedding_rows: int,
    cache: Path,
    seed: int,
    report: Report | None = None,
) -> Prepared:
    """Prepare data, or find it prepared, in `<cache>/data/<key>/`.

    Paths of sources are relative to `base`. Raises `DataError` for text that cannot be used,
    `StorageError` for a disk that cannot; then nothing is left. Safe to call from many processes at once.
    """
    say = report or (lambda message: None)
    hashes = HashCache(cache / "hashes")
    sources = _open_sources(config, base)
    key = _key(config, sources, tokenizer_fingerprint(tokenizer_folder), seed, hashes)
    folder = cache / "data" / key
    made = False
    if not folder.exists():
        job = _job(config, sources, tokenizer_folder, embedding_rows, seed, say)
        made = _make_once(folder, job, hashes, say)
    return _open(folder, embedding_rows, reused=not made)


def _open_sources(config: DataConfig, base: Path) -> Sources:
    heldout = (config.heldout.sources if config.heldout else None) or []
    return Sources(
        [open_source(source, base) for source in config.train],
        [open_source(source, base) for source in heldout],
    )


def _key(config: DataConfig, sources: Sources, fingerprint: str, seed: int, hashes: HashCache) -> str:
    fraction = config.heldout.fraction if config.heldout else None
    parts = {
        "format": FORMAT,
        "tokenizer": fingerprint,
        "train": [source.identity(hashes) for source in sources.train],
        "heldout": [source.identity(hashes) for source in sources.heldout],
        "draw": None if fraction is None else [fraction, seed],
        "options": _options(config),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def _options(config: DataConfig) -> dict[str, Any]:
    options = {name: getattr(config, name) for name in OPTIONS}
    return {**options, "unicode": unicode_version(config.normalisation)}


def _job(
    config: DataConfig, sources: Sources, tokenizer_folder: Path, embedding_rows: int, seed: int, say: Report
) -> Job:
    workers, why = choose_workers(config.workers, sources.num_bytes)
    say(
        f"tokenising with {workers} worker processes ({why})"
        if workers
        else f"tokenising in this process ({why})"
    )
    tokenizer = TextTokenizer.load(tokenizer_folder)
    return Job(config, tokenizer, embedding_rows, seed, sources, workers)


def _make_once(folder: Path, job: Job, hashes: HashCache, say: Report) -> bool:
    """Make the folder unless another process does so first; whether it was made here."""
    lock = folder.with_name(f".{folder.name}.lock")
    waiting = f"another process prepares {folder.name}: waiting for it"
    # Until something is written, the size of the sources is the best guess at the need.
    with (
        storage_errors(folder, job.num_bytes or 0),
        exclusive(lock, waiting=lambda: say(waiting)) as held,
    ):
        if held:
            sweep(folder.parent, folder.name)
        if folder.exists():
            return False
        card = _make(folder, job, hashes)
    for line in summary(card):
        say(line)
    return True


def _make(folder: Path, job: Job, hashes: HashCache) -> dict[str, Any]:
    begin = time.monotonic()
    with progress("prepare", job.num_bytes) as advance, temporary_folder(folder) as temporary:
        builder = Builder(job, temporary, advance)
        with storage_errors(folder, builder.needed_bytes):
            built = builder.build()
            seconds = time.monotonic() - begin
            card = make_card(folder.name, job, built, hashes, _options(job.config), seconds)
            text = json.dumps(card, indent=2, ensure_ascii=False) + "\n"
            write_synced(temporary / CARD_FILE, text.encode())
            publish_folder(temporary, folder)
    return card


def _open(folder: Path, embedding_rows: int, *, reused: bool) -> Prepared:
    card = read_card(folder)
    largest = card["largest_token"]
    # The model may be another one than the data was prepared for.
    check_token(largest["id"], largest["token"], largest["where"], embedding_rows)
    heldout = PackedData.open(folder / "heldout") if "heldout" in card["splits"] else None
    return Prepared(folder.name, folder, PackedData.open(folder / "train"), heldout, reused, card)
