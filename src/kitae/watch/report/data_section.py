"""The data card: what text went in, what became of it, what was dropped or changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kitae.watch.report.blocks import Block, Fold, Listing, Table, Words
from kitae.watch.report.figures import number, size
from kitae.watch.report.run_view import BROKEN, RunView

CARD_FILE = "card.json"
_COUNTS = {
    "documents": "documents",
    "bytes": "bytes",
    "chars": "characters",
    "tokens": "tokens",
    "text_tokens": "tokens of text",
    "begin_and_end_tokens": "begin and end tokens",
    "rows": "rows",
    "tokens_in_rows": "tokens in rows",
    "tokens_left_over": "tokens left over",
    "padding": "padding, positions",
    "documents_changed_by_normalisation": "documents changed by normalisation",
    "documents_cut": "documents cut",
    "tokens_cut": "tokens cut",
    "unknown_tokens": "unknown tokens",
    "special_tokens_in_text": "special tokens in the text",
}
"""Of a split, in words; others are shown by their names."""
_SOURCES = 30


def data(view: RunView) -> Iterator[Block]:
    """The cards of all phases."""
    prepared = view.stages.get("prepare") or {}
    folders = prepared.get("folders") or [prepared.get("folder")]
    for place, folder in enumerate(dict.fromkeys(one for one in folders if one)):
        title = f"Phase {place + 1}: " if len(folders) > 1 else ""
        card = _card(view, Path(folder))
        if card is None:
            yield Words(
                f"{title}the data card is not on this machine: it was {Path(folder) / CARD_FILE}.", "warn"
            )
        else:
            yield from _of_card(title, card)


def _card(view: RunView, folder: Path) -> dict[str, Any] | None:
    try:
        value = json.loads((folder / CARD_FILE).read_text(encoding="utf-8"))
    except OSError:
        return None
    except BROKEN as error:
        view.gaps.append(f"{CARD_FILE} of the prepared data is damaged and left out: {error}")
        return None
    return value if isinstance(value, dict) else None


def _of_card(title: str, card: Mapping[str, Any]) -> Iterator[Block]:
    for warning in card.get("warnings") or []:
        yield Words(f"Warning: {warning}.", "warn")
    yield from _splits(title, card)
    yield from _sources(title, card)
    yield from _labels(title, card)
    duplicates = card.get("heldout_duplicates_in_train")
    if duplicates is not None:
        yield Words(f"Training documents that are held out, too: {number(duplicates)}.")
    text = json.dumps(card, indent=2, ensure_ascii=False)
    yield Fold(f"{title}The whole card", (Listing(CARD_FILE, text),), printed=False)


def _splits(title: str, card: Mapping[str, Any]) -> Iterator[Block]:
    splits = dict(sorted((card.get("splits") or {}).items(), reverse=True))
    counts = dict.fromkeys(
        name for one in splits.values() for name, count in one.items() if isinstance(count, int | float)
    )
    rows = [
        (_COUNTS.get(name, name.replace("_", " ")), *(number(one.get(name)) for one in splits.values()))
        for name in sorted(
            counts, key=lambda name: list(_COUNTS).index(name) if name in _COUNTS else len(_COUNTS)
        )
    ]
    if rows:
        yield Table(f"{title}what the model gets", ("", *splits), tuple(rows))


def _sources(title: str, card: Mapping[str, Any]) -> Iterator[Block]:
    rows = []
    for split, intake in sorted((card.get("sources") or {}).items(), reverse=True):
        for source in intake.get("from") or []:
            files = source.get("files") or []
            bytes_ = sum(one.get("bytes") or 0 for one in files)
            name = str(source.get("path") or source.get("hub") or "?")
            cells = (source.get("documents"), source.get("blank_lines"), source.get("bad_lines"))
            rows.append((name, split, number(len(files)), size(bytes_), *map(number, cells)))
    if rows:
        more = f" (the first {_SOURCES} of {len(rows)})" if len(rows) > _SOURCES else ""
        head = ("source", "for", "files", "bytes", "documents", "blank lines", "bad lines")
        caption = f"{title}where the text was when it was prepared{more}"
        yield Table(caption, head, tuple(rows[:_SOURCES]), frozenset({0, 1}))


def _labels(title: str, card: Mapping[str, Any]) -> Iterator[Block]:
    splits = {name: one["labels"] for name, one in (card.get("splits") or {}).items() if "labels" in one}
    names = dict.fromkeys(name for one in splits.values() for name in one)
    if names:
        rows = tuple((name, *(number(one.get(name)) for one in splits.values())) for name in names)
        yield Table(f"{title}texts by class", ("class", *splits), rows)
    dropped = (card.get("labels") or {}).get("dropped_by_label") or {}
    if dropped:
        told = ", ".join(f"{label}: {number(count)}" for label, count in dropped.items())
        yield Words(f"Texts that were left out for their label: {told}.")
