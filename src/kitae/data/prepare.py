"""Prepared data: a folder named by the hash of all that it depends on, made once and then reused.

The key covers the content of the sources (not their names or times), the tokenizer's files, and what the
objective's preparation depends on: the options that matter, its format's version, and the seed only where
something is drawn. Not the number of workers.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kitae.data.card import CARD_FILE, drops, make_card, read_card
from kitae.data.hashing import HashCache
from kitae.data.labelled import Labelling
from kitae.data.labels import record_fields
from kitae.data.masked import MaskedText
from kitae.data.packing import Packing
from kitae.data.preparation import Job, Preparation
from kitae.data.progress import progress
from kitae.data.sources import Sources, open_source
from kitae.data.special import check_token
from kitae.data.word_tokenizer import fingerprint_of
from kitae.recipe.sources import DataConfig
from kitae.storage.disk import storage_errors
from kitae.storage.files import write_synced
from kitae.storage.folders import publish_folder, sweep, temporary_folder
from kitae.storage.lock import exclusive

Report = Callable[[str], None]

CAUSAL = "causal-lm"
PREPARATIONS: dict[str, Preparation] = {
    CAUSAL: Packing(),
    "masked-lm": MaskedText(),
    "classification": Labelling(),
}
"""Objective of the recipe, and how its rows are made. Cards of causal-lm name no objective."""


@dataclass(frozen=True)
class Prepared:
    """Rows that are ready to train on."""

    key: str
    folder: Path
    train: Any
    """`Examples` of the objective: for causal-lm `PackedData`."""
    heldout: Any
    """Likewise; None when nothing is held out."""
    reused: bool
    """Whether the folder was there already, so that nothing was tokenised."""
    card: dict[str, Any]


def data_key(
    config: DataConfig,
    *,
    base: Path,
    tokenizer_fingerprint: str,
    seed: int,
    cache: Path | None = None,
    objective: str = CAUSAL,
) -> str:
    """Name of the prepared folder; with `cache`, file hashes are remembered there. Raises `DataError`."""
    hashes = HashCache(cache / "hashes" if cache else None)
    parts = PREPARATIONS[objective].key_parts(config, sources := _open_sources(config, base), seed)
    return _key(parts, sources, tokenizer_fingerprint, hashes)


def prepare(
    config: DataConfig,
    *,
    base: Path,
    tokenizer_folder: Path,
    embedding_rows: int,
    cache: Path,
    seed: int,
    objective: str = CAUSAL,
    report: Report | None = None,
) -> Prepared:
    """Prepare data, or find it prepared, in `<cache>/data/<key>/`.

    Paths of sources are relative to `base`. Raises `DataError` for text that cannot be used,
    `StorageError` for a disk that cannot; then nothing is left. Safe to call from many processes at once.
    """
    say = report or (lambda message: None)
    hashes = HashCache(cache / "hashes")
    sources = _open_sources(config, base)
    way = PREPARATIONS[objective]
    parts = way.key_parts(config, sources, seed)
    key = _key(parts, sources, fingerprint_of(tokenizer_folder, config.dictionary), hashes)
    folder = cache / "data" / key
    made = False
    if not folder.exists():
        job = _job(way, config, sources, tokenizer_folder, embedding_rows, seed, say)
        made = _make_once(folder, objective, job, hashes, say)
    return _open(way, folder, embedding_rows, reused=not made)


def _open_sources(config: DataConfig, base: Path) -> Sources:
    heldout = (config.heldout.sources if config.heldout else None) or []
    fields = record_fields(config)
    return Sources(
        [open_source(source, base, fields) for source in config.train],
        [open_source(source, base, fields) for source in heldout],
    )


def _key(parts: dict[str, Any], sources: Sources, fingerprint: str, hashes: HashCache) -> str:
    parts = {
        **parts,
        "tokenizer": fingerprint,
        "train": [source.identity(hashes) for source in sources.train],
        "heldout": [source.identity(hashes) for source in sources.heldout],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def _job(
    way: Preparation,
    config: DataConfig,
    sources: Sources,
    tokenizer_folder: Path,
    embedding_rows: int,
    seed: int,
    say: Report,
) -> Job:
    workers, how = way.work(config, sources)
    say(how)
    tokenizer = way.load_tokenizer(tokenizer_folder, config)
    return Job(config, tokenizer, embedding_rows, seed, sources, workers)


def _make_once(folder: Path, objective: str, job: Job, hashes: HashCache, say: Report) -> bool:
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
        card = _make(folder, objective, job, hashes)
    for line in summary(card):
        say(line)
    return True


def _make(folder: Path, objective: str, job: Job, hashes: HashCache) -> dict[str, Any]:
    begin = time.monotonic()
    way = PREPARATIONS[objective]
    with progress("prepare", job.num_bytes) as advance, temporary_folder(folder) as temporary:
        builder = way.builder(job, temporary, advance)
        with storage_errors(folder, builder.needed_bytes):
            built = builder.build()
            seconds = time.monotonic() - begin
            options = way.options(job.config, job.sources)
            card = make_card(folder.name, job, built, hashes, options, seconds)
            if objective != CAUSAL:
                card = {"objective": objective, **card}
            text = json.dumps(card, indent=2, ensure_ascii=False) + "\n"
            write_synced(temporary / CARD_FILE, text.encode())
            publish_folder(temporary, folder)
    return card


def _open(way: Preparation, folder: Path, embedding_rows: int, *, reused: bool) -> Prepared:
    card = read_card(folder)
    largest = card["largest_token"]
    # The model may be another one than the data was prepared for.
    check_token(largest["id"], largest["token"], largest["where"], embedding_rows)
    train, heldout = (
        way.open(folder / name, embedding_rows) if name in card["splits"] else None
        for name in ("train", "heldout")
    )
    return Prepared(folder.name, folder, train, heldout, reused, card)


def objective_of(card: dict[str, Any]) -> str:
    """The objective that a card's rows are for."""
    return str(card.get("objective", CAUSAL))


def summary(card: dict[str, Any]) -> list[str]:
    """The card in a few lines for people: splits, what was dropped, warnings."""
    way = PREPARATIONS[objective_of(card)]
    splits = [way.summary(name, split, card["options"]) for name, split in card["splits"].items()]
    return [*splits, *drops(card)]
