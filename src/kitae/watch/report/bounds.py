"""How much of anything a report shows, so that no run makes it larger than a browser likes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from kitae.watch.report.blocks import Block, Fold, Listing, Table, Words

CELL, WORDS, LISTING = 400, 4_000, 60_000
"""Characters of a cell, a paragraph and a listing."""
ROWS, COLUMNS, BLOCKS = 400, 40, 100
"""Of a table, and blocks of a section or fold."""
_FEWEST_CHARACTERS, _FEWEST_ROWS = 2_000, 40
FACTS = 60_000
"""Characters of what is said for programs."""


def bounded(blocks: Iterable[Block], runs: int = 1) -> Iterator[Block]:
    """Blocks with what is too long in them cut, and said to be; in a report on several runs sooner."""
    for block in islice(blocks, BLOCKS):
        cut = _CUTS.get(type(block))
        yield block if cut is None else cut(block, runs)


def cut(text: str, most: int) -> str:
    """The beginning of a text, and how much more there is."""
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most:,} more characters)"


def small(value: Any, runs: int = 1) -> Any:
    """A nested value; None where it is far larger than what kitae writes."""
    return value if len(json.dumps(value, default=str)) <= FACTS // runs else None


def _words(block: Words, runs: int) -> Words:
    return replace(block, text=cut(block.text, WORDS))


def _listing(block: Listing, runs: int) -> Listing:
    return replace(block, text=cut(block.text, max(_FEWEST_CHARACTERS, LISTING // runs)))


def _table(block: Table, runs: int) -> Table:
    rows = block.rows[: max(_FEWEST_ROWS, ROWS // runs)]
    left = len(block.rows) - len(rows)
    caption = f"{block.caption} ({left:,} further rows are left out)" if left else block.caption
    return replace(block, caption=cut(caption, CELL), head=_cells(block.head), rows=tuple(map(_cells, rows)))


def _cells(cells: Sequence[str]) -> tuple[str, ...]:
    return tuple(cut(cell, CELL) for cell in cells[:COLUMNS])


def _fold(block: Fold, runs: int) -> Fold:
    return replace(block, blocks=tuple(bounded(block.blocks, runs)))


_CUTS: dict[type, Callable[[Any, int], Block]] = {
    Words: _words,
    Listing: _listing,
    Table: _table,
    Fold: _fold,
}
