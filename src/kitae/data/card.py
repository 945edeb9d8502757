"""The data card: what went in, what came out, and everything that was dropped or changed on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers

from kitae import __version__
from kitae.data.hashing import HashCache
from kitae.data.preparation import Built, Intake, Job
from kitae.data.sources import Source
from kitae.errors import DataError

CARD_FILE = "card.json"


def make_card(
    key: str, job: Job, built: Built, hashes: HashCache, options: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """The card as it is written to `card.json`."""
    tokenizer = job.tokenizer
    return {
        "key": key,
        "kitae": __version__,
        "tokenizer": {
            "fingerprint": tokenizer.fingerprint,
            "vocab_size": tokenizer.vocab_size,
            "embedding_rows": job.embedding_rows,
            **built.tokenizer,
            "tokenizers_version": tokenizers.__version__,
        },
        "options": options,
        **built.notes,
        "sources": {name: _sources(job, name, intake, hashes) for name, intake in built.intakes.items()},
        "splits": built.splits,
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


def _warnings(job: Job, built: Built) -> list[str]:
    bad = sum(tally.bad_lines for intake in built.intakes.values() for tally in intake.tallies)
    vocab_size = job.tokenizer.vocab_size
    intake = {
        f"{bad} bad lines were left out": bad,
        f"{built.duplicates} training documents are also held out (exact duplicates): "
        "the held-out loss flatters the model; they were kept": built.duplicates,
    }
    model = {
        f"the tokenizer knows ids up to {vocab_size - 1}, the model {job.embedding_rows} rows; "
        "no text here uses the ids beyond": vocab_size > job.embedding_rows,
    }
    unused = [
        f"{name}: {option} of source {source.config.path or source.config.hub} has no effect"
        for name in ("train", "heldout")
        for source in getattr(job.sources, name)
        for option in source.without_effect()
    ]
    return [*_that_apply(intake), *built.warnings, *_that_apply(model), *unused]


def _that_apply(messages: dict[str, Any]) -> list[str]:
    return [message for message, applies in messages.items() if applies]


def read_card(folder: Path) -> dict[str, Any]:
    """The card of a prepared folder; raises `DataError`."""
    try:
        return json.loads((folder / CARD_FILE).read_text("utf-8"))  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        raise DataError(
            f"{folder}: not prepared data ({error}); delete the folder and prepare again"
        ) from error


def drops(card: dict[str, Any]) -> list[str]:
    """What was dropped or changed, and the warnings, in a few lines for people."""
    lines = []
    empty = sum(group["empty_documents_dropped"] for group in card["sources"].values())
    changed = sum(split["documents_changed_by_normalisation"] for split in card["splits"].values())
    if empty:
        lines.append(f"{empty:,} empty documents were dropped")
    labels = card.get("labels", {})
    if labels.get("dropped_texts"):
        counts = ", ".join(f"{label}: {count:,}" for label, count in labels["dropped_by_label"].items())
        lines.append(f"{labels['dropped_texts']:,} texts were left out for their label ({counts})")
    if changed:
        lines.append(f"{changed:,} documents were changed by {card['options']['normalisation']}")
    return lines + [f"warning: {warning}" for warning in card["warnings"]]
