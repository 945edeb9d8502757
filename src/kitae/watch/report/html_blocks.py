"""Blocks of a report as HTML. `Markup.text` is the only way of a text into it."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from math import isfinite
from typing import Any

from kitae.watch.report.blocks import Block, Chart, Fold, Heat, Listing, Section, Table, Words
from kitae.watch.report.conceal import Concealer

_HEAT_DIGITS = 3
_CHART_FLAGS = ("dates", "doubling", "share", "units", "decades")


class Markup:
    """Writes blocks; collects what the plots draw."""

    def __init__(self, conceal: Concealer) -> None:
        self._conceal = conceal
        self.charts: dict[str, dict[str, Any]] = {}
        """By key, for the page's JSON."""

    def text(self, text: str) -> str:
        """Text as it stands in the page: without secrets, and without anything that could be markup."""
        return html.escape(printable(self._conceal(text)))

    def section(self, section: Section) -> str:
        """A part of the page."""
        key = self.text(section.key)
        inside = "".join(self._blocks(section.blocks))
        return (
            f'<section id="{key}" aria-labelledby="{key}-title">'
            f'<h2 id="{key}-title">{self.text(section.title)}</h2>{inside}</section>\n'
        )

    def _blocks(self, blocks: Sequence[Block]) -> Iterator[str]:
        for drawn, run in groupby(blocks, lambda block: isinstance(block, Chart | Heat)):
            written = "".join(self._WRITERS[type(block)](self, block) for block in run)
            yield f'<div class="charts">{written}</div>' if drawn else written

    def _words(self, block: Words) -> str:
        return f'<p class="{block.tone}">{self.text(block.text)}</p>'

    def _table(self, block: Table) -> str:
        caption = self.text(block.caption)
        sides = ["words" if place in block.words else "number" for place in range(len(block.head))]
        head = "".join(
            f'<th scope="col" class="{side}">{self.text(name)}</th>' if name else f'<td class="{side}"></td>'
            for name, side in zip(block.head, sides, strict=True)
        )
        body = "".join(f"<tr>{self._row(row, sides)}</tr>" for row in block.rows)
        return (
            f'<div class="wide" tabindex="0" role="group" aria-label="{caption}"><table><caption>{caption}'
            f"</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def _row(self, row: Sequence[str], sides: Sequence[str]) -> str:
        first, *others = (self.text(cell) for cell in row)
        cells = (f'<td class="{side}">{cell}</td>' for cell, side in zip(others, sides[1:], strict=True))
        return f'<th scope="row" class="{sides[0]}">{first}</th>{"".join(cells)}'

    def _listing(self, block: Listing) -> str:
        return (
            f'<figure class="listing"><figcaption>{self.text(block.caption)}</figcaption>'
            f'<pre tabindex="0">{self.text(block.text)}</pre></figure>'
        )

    def _fold(self, block: Fold) -> str:
        inside = "".join(self._blocks(block.blocks))
        kind = "" if block.printed else ' class="screen"'
        return f"<details{kind}><summary>{self.text(block.title)}</summary>{inside}</details>"

    def _chart(self, block: Chart) -> str:
        self.charts[block.key] = {
            "kind": "lines",
            "x": block.x,
            "y": block.y,
            "marks": [[x, words] for x, words in block.marks],
            **{name: True for name in _CHART_FLAGS if getattr(block, name)},
            "traces": [
                {
                    "name": one.name,
                    "run": one.run,
                    "x": numbers(one.xs),
                    "y": numbers(one.ys),
                    **{name: True for name in ("points", "dash") if getattr(one, name)},
                    **{
                        name: numbers(ends)
                        for name in ("low", "high")
                        if (ends := getattr(one, name)) is not None
                    },
                }
                for one in block.traces
            ],
        }
        numbers_ = "" if block.numbers is None else self._fold(Fold("In numbers", (block.numbers,)))
        return self._figure(block, numbers_)

    def _heat(self, block: Heat) -> str:
        self.charts[block.key] = {
            "kind": "heat",
            "x": block.x,
            "y": block.y,
            "xs": numbers(block.xs),
            "names": list(block.names),
            "values": [numbers(row, _HEAT_DIGITS) for row in block.values],
        }
        return self._figure(block, "")

    def _figure(self, block: Chart | Heat, more: str) -> str:
        key, title, summary = self.text(block.key), self.text(block.title), self.text(block.summary)
        return (
            f'<figure class="chart"><h3>{title}</h3>'
            f'<div class="plot" id="plot-{key}" data-chart="{key}" role="img" '
            f'aria-label="{title}. {summary}">'
            f"</div><figcaption>{summary}</figcaption>{more}</figure>"
        )

    _WRITERS: dict[type, Callable[[Any, Any], str]] = {  # noqa: RUF012
        Words: _words,
        Table: _table,
        Listing: _listing,
        Fold: _fold,
        Chart: _chart,
        Heat: _heat,
    }


def numbers(values: Sequence[float | None], digits: int | None = None) -> list[float | int | None]:
    """For JSON: whole ones without a point, what is not finite as null; with `digits`, rounded."""
    return [_number(value, digits) for value in values]


def _number(value: float | None, digits: int | None) -> float | int | None:
    if value is None or not isfinite(value):
        return None
    rounded = value if digits is None else round(value, digits)
    return int(rounded) if float(rounded).is_integer() and abs(rounded) < 2**53 else float(rounded)


def printable(text: str) -> str:
    """Without control characters, which HTML forbids, and halves of surrogates, which have no bytes."""
    kept = "".join(one if one >= " " or one in "\n\t" else "\N{REPLACEMENT CHARACTER}" for one in text)
    return kept.encode("utf-8", "replace").decode("utf-8")
