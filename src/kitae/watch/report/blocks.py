"""What a report is made of, whether it becomes HTML or Markdown.

Texts are plain: each form escapes them, and both conceal secrets (`conceal`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Tone = Literal["plain", "good", "warn", "bad"]


@dataclass(frozen=True)
class Words:
    """A paragraph."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first cell of a row names it."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: frozenset[int] = frozenset({0})
    """Columns of words, which stand to the left; those of numbers stand to the right."""


@dataclass(frozen=True)
class Listing:
    """Text as it is, line by line."""

    caption: str
    text: str


@dataclass(frozen=True)
class Trace:
    """A curve of a chart: `ys` over `xs`."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float | None]
    points: bool = False
    """Marked as single values, such as held-out losses."""
    run: int = 0
    """Of which of the runs that are compared; it decides the colour."""
    dash: bool = False
    low: Sequence[float | None] | None = None
    """Ends of error bars, as long as `ys`."""
    high: Sequence[float | None] | None = None


@dataclass(frozen=True)
class Chart:
    """Curves over one axis."""

    key: str
    """Its id, unique in the report."""
    title: str
    x: str
    """What is on the axis, with its unit."""
    y: str
    traces: tuple[Trace, ...]
    summary: str
    """What there is to see, in a line."""
    marks: tuple[tuple[float, str], ...] = ()
    """Where something begins, such as an attempt, and what."""
    dates: bool = False
    """Whether x is milliseconds since 1970."""
    doubling: bool = False
    """Whether x is drawn in powers of two."""
    share: bool = False
    """Whether y is a share of 1, shown in per cent."""
    units: bool = False
    """Whether y is shown with k, M, G."""
    decades: bool = False
    """Whether y is drawn in powers of ten."""
    numbers: Table | None = None
    """Its curves in numbers."""


@dataclass(frozen=True)
class Heat:
    """Shares of 1 by row and time, as colours."""

    key: str
    title: str
    x: str
    y: str
    xs: Sequence[float]
    """Milliseconds since 1970, [columns]."""
    names: Sequence[str]
    """[rows]"""
    values: Sequence[Sequence[float | None]]
    """[rows][columns]"""
    summary: str


@dataclass(frozen=True)
class Fold:
    """What is shown when it is opened."""

    title: str
    blocks: tuple[Block, ...]
    printed: bool = True


Block: TypeAlias = "Words | Table | Listing | Chart | Heat | Fold"


@dataclass(frozen=True)
class Section:
    """A part of the report under a heading."""

    key: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Tile:
    """A fact at the top."""

    name: str
    value: str


@dataclass(frozen=True)
class Report:
    """Everything."""

    title: str
    verdict: str
    """One sentence."""
    tone: Tone
    tiles: tuple[Tile, ...]
    sections: tuple[Section, ...]
    written: str
    """By what and when."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What it says for programs; the page carries it as JSON."""
