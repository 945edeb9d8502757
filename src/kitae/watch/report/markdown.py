"""A report as Markdown: the same numbers; curves are a line of text, their ends and extremes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kitae.watch.report.blocks import Block, Chart, Fold, Heat, Listing, Report, Table, Words
from kitae.watch.report.conceal import Concealer
from kitae.watch.report.figures import sparkline

MARK = "<!-- kitae report -->"
"""At the end of every file."""
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+|~$!])")
_RANK = 2
"""Of headings of sections."""


def markdown(report: Report, conceal: Concealer | None = None) -> str:
    """The whole file."""
    return _Writer(conceal or Concealer()).written(report)


class _Writer:
    """Writes blocks as lines."""

    def __init__(self, conceal: Concealer) -> None:
        self._conceal = conceal

    def text(self, text: str) -> str:
        """Text in one line, none of which is markup: neither of Markdown nor of HTML."""
        plain = " ".join(self._conceal(text).split())
        return _SPECIAL.sub(r"\\\1", plain.replace("&", "&amp;")).replace("<", "&lt;").replace(">", "&gt;")

    def written(self, report: Report) -> str:
        """The file."""
        lines = [f"# {self.text(report.title)}", "", f"**{self.text(report.verdict)}**", ""]
        if report.tiles:
            lines += [f"- {self.text(one.name)}: {self.text(one.value)}" for one in report.tiles] + [""]
        for section in report.sections:
            lines += [f"## {self.text(section.title)}", "", *self._blocks(section.blocks, _RANK + 1)]
        lines += [self.text(report.written), "", MARK, ""]
        return "\n".join(lines).encode("utf-8", "replace").decode("utf-8")

    def _blocks(self, blocks: Sequence[Block], rank: int) -> Iterator[str]:
        for block in blocks:
            yield from self._WRITERS[type(block)](self, block, rank)

    def _words(self, block: Words, rank: int) -> Iterator[str]:
        for line in block.text.splitlines() or [""]:
            yield f"{self.text(line)}  "
        yield ""

    def _table(self, block: Table, rank: int) -> Iterator[str]:
        yield f"*{self.text(block.caption)}*"
        yield ""
        yield self._row(block.head)
        yield (
            "|"
            + "|".join("---" if place in block.words else "---:" for place in range(len(block.head)))
            + "|"
        )
        yield from (self._row(row) for row in block.rows)
        yield ""

    def _row(self, cells: Sequence[str]) -> str:
        return f"| {' | '.join(self.text(cell) for cell in cells)} |"

    def _listing(self, block: Listing, rank: int) -> Iterator[str]:
        text = self._conceal(block.text)
        longest = max((len(one) for one in re.findall(r"`+", text)), default=0)
        fence = "`" * max(3, longest + 1)
        yield f"*{self.text(block.caption)}*"
        yield ""
        yield from (f"{fence}text", text, fence, "")

    def _fold(self, block: Fold, rank: int) -> Iterator[str]:
        yield f"{'#' * min(rank, 6)} {self.text(block.title)}"
        yield ""
        yield from self._blocks(block.blocks, rank + 1)

    def _chart(self, block: Chart, rank: int) -> Iterator[str]:
        yield f"{'#' * min(rank, 6)} {self.text(block.title)}"
        yield ""
        for trace in block.traces:
            yield f"`{sparkline([y for y in trace.ys if y is not None])}` {self.text(trace.name)}  "
        yield ""
        if block.numbers is not None:
            yield from self._table(block.numbers, rank)

    def _heat(self, block: Heat, rank: int) -> Iterator[str]:
        yield f"{'#' * min(rank, 6)} {self.text(block.title)}"
        yield ""
        yield from (self.text(block.summary), "")

    _WRITERS: dict[type, Callable[[Any, Any, int], Iterator[str]]] = {  # noqa: RUF012
        Words: _words,
        Table: _table,
        Listing: _listing,
        Fold: _fold,
        Chart: _chart,
        Heat: _heat,
    }
