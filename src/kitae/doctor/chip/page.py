"""The page of a chip test: Markdown for a person, JSON for us, written anew after each part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from kitae.doctor.chip.judge import Result
from kitae.storage.disk import storage_errors
from kitae.storage.files import replace_file

NAME = "chip-test"


def write_page(folder: Path, facts: Mapping[str, str], results: Mapping[str, Result]) -> Path:
    """Write `chip-test.md` and `chip-test.json`; the first one's path. Raises `StorageError`."""
    page = folder / f"{NAME}.md"
    values = {
        "format": 1,
        "machine": dict(facts),
        "parts": {name: asdict(one) for name, one in results.items()},
    }
    with storage_errors(folder):
        replace_file(page, markdown(facts, results).encode())
        replace_file(folder / f"{NAME}.json", (json.dumps(values, indent=1) + "\n").encode())
    return page


def markdown(facts: Mapping[str, str], results: Mapping[str, Result]) -> str:
    """The page."""
    lines = ["# kitae chip test", "", *_table(("", ""), [(name, value) for name, value in facts.items()]), ""]
    said = [(name, one.verdict, one.text, f"{one.seconds:.0f} s") for name, one in results.items()]
    lines += [*_table(("part", "result", "what was found", "time"), said), ""]
    for name, one in results.items():
        if one.rows:
            lines += [f"## {name}", "", *_table(one.header, one.rows), ""]
    return "\n".join(lines)


def _table(header: tuple[str, ...], rows: object) -> list[str]:
    cells = [header, tuple("-" for _ in header), *rows]  # type: ignore[misc]
    return ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in cells]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
