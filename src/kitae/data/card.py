"""The data card: what went in, what came out, and everything that was dropped or changed on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers

from kitae import __version__
from kitae.data.build import Built, Intake, Job, Side
from kitae.data.hashing import HashCache
from kitae.data.sources import Source
from kitae.data.special import special_ids
from kitae.errors import DataError

CARD_FILE = "card.json"


def make_card(
    key: str, job: Job, built: Built, hashes: HashCache, options: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """The card as it is written to `card.json`."""
    bos, eos = special_ids(job.config, job.tokenizer)
    tokenizer = job.tokenizer
    return {
        "key": key,
        "kitae": __version__,
        "tokenizer": {
            "fingerprint": tokenizer.fingerprint,
            "vocab_size": tokenizer.vocab_size,
            "embedding_rows": job.embedding_rows,
            "before_each_document": [[token, tokenizer.token(token)] for token in bos],
            "behind_each_document": [[token, tokenizer.token(token)] for token in eos],
            "tokenizers_version": tokenizers.__version__,
        },
        "options": options,
        "document_ends": "newlines at both ends of a document are cut off",
        "sources": {name: _sources(job, name, intake, hashes) for name, intake in built.intakes.items()},
        "splits": {name: _split(side, len(bos) + len(eos)) for name, side in built.sides.items()},
        "largest_token": {
            "id": built.largest.id,
            "token": tokenizer.token(built.largest.id),
            "where": built.largest.where,
        },
        "heldout_duplicates_in_train": built.duplicates,
        "seconds": round(seconds, 3),
        "warnings": _warnings(job, built),
    }


def _sources(job: Job, name: str, intake: Intake, hashes: HashCache) -> dict[str, Any]:
    sources: list[Source] = getattr(job.sources, name)
    return {
        "documents": sum(tally.documents for tally in intake.tallies),
        "empty_documents_dropped": intake.empty,
        "from": [
            {
                **source.describe(hashes),
                "documents": tally.documents,
                "blank_lines": tally.blank_lines,
                "bad_lines": tally.bad_lines,
                "bad_line_examples": tally.bad_examples,
            }
            for source, tally in zip(sources, intake.tallies, strict=True)
        ],
    }


def _split(side: Side, special_per_document: int) -> dict[str, int]:
    meta = side.meta
    assert meta is not None
    special = side.documents * special_per_document
    return {
        "documents": side.documents,
        "bytes": side.num_bytes,
        "chars": side.num_chars,
        "documents_changed_by_normalisation": side.changed,
        "tokens": meta.tokens,
        "text_tokens": meta.tokens - special,
        "begin_and_end_tokens": special,
        "rows": meta.rows,
        "tokens_in_rows": meta.tokens - meta.remainder,
        "tokens_left_over": meta.remainder,
        "padding": meta.padding,
    }


def _warnings(job: Job, built: Built) -> list[str]:
    bad = sum(tally.bad_lines for intake in built.intakes.values() for tally in intake.tallies)
    tokenizer, inside = job.tokenizer, built.special_in_text
    found = {
        f"{bad} bad lines were left out": bad,
        f"{built.duplicates} training documents are also held out (exact duplicates): "
        "the held-out loss flatters the model; they were kept": built.duplicates,
        f"the begin token stands {inside['bos']} times inside the text itself": inside["bos"],
        f"the end token stands {inside['eos']} times inside the text itself": inside["eos"],
        f"the tokenizer knows ids up to {tokenizer.vocab_size - 1}, the model {job.embedding_rows} rows; "
        "no text here uses the ids beyond": tokenizer.vocab_size > job.embedding_rows,
    }
    unused = [
        f"{name}: {option} of source {source.config.path or source.config.hub} has no effect"
        for name in ("train", "heldout")
        for source in getattr(job.sources, name)
        for option in source.without_effect()
    ]
    return [message for message, applies in found.items() if applies] + unused


def read_card(folder: Path) -> dict[str, Any]:
    """The card of a prepared folder; raises `DataError`."""
    try:
        return json.loads((folder / CARD_FILE).read_text("utf-8"))  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        raise DataError(
            f"{folder}: not prepared data ({error}); delete the folder and prepare again"
        ) from error


def summary(card: dict[str, Any]) -> list[str]:
    """The card in a few lines for people: splits, what was dropped, warnings."""
    sequence_length = card["options"]["sequence_length"]
    lines = [
        f"{name}: {split['documents']:,} documents, {split['tokens']:,} tokens, {split['rows']:,} rows of "
        f"{sequence_length}, {split['tokens_left_over']:,} tokens left over"
        for name, split in card["splits"].items()
    ]
    empty = sum(group["empty_documents_dropped"] for group in card["sources"].values())
    changed = sum(split["documents_changed_by_normalisation"] for split in card["splits"].values())
    if empty:
        lines.append(f"{empty:,} empty documents were dropped")
    if changed:
        lines.append(f"{changed:,} documents were changed by {card['options']['normalisation']}")
    return lines + [f"warning: {warning}" for warning in card["warnings"]]
