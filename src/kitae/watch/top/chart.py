"""Curves of text: braille dots, two by four to a sign.

A screen has up to five of them and is redrawn every second. plotext (5.3.2) takes 7 ms for one of 80 x 20
signs, where this takes less than one, keeps its state in a module, and changed its face in version 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, log10
from typing import Any

from rich.text import Text

from kitae.watch.top.look import UNICODE, Glyphs
from kitae.watch.top.numbers import compact

_LEFT = (0x40, 0x04, 0x02, 0x01)
_RIGHT = (0x80, 0x20, 0x10, 0x08)
"""Bits of the four dots of a column, from below."""


def _sign_of(left: int, right: int) -> str:
    dots = zip((*_LEFT, *_RIGHT), range(8), strict=True)
    return chr(0x2800 + sum(bit for bit, at in dots if (left | right << 4) >> at & 1))


_SIGNS = [[_sign_of(left, right) for right in range(16)] for left in range(16)]


@dataclass(frozen=True)
class Series:
    """A curve, or single points."""

    xs: Sequence[float]
    ys: Sequence[float]
    style: str = ""
    points: bool = False


@dataclass(frozen=True)
class Scale:
    """From values to 0..1."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def of(cls, values: Sequence[float], log: bool = False) -> Scale:
        """All of the values, and something around a single one; logarithmic where none is 0 or less."""
        low, high = min(values), max(values)
        log = log and low > 0
        if low == high:
            wide = abs(low) * 0.05 or 1.0
            low, high = (low - wide, high + wide) if not log else (low / 1.05, high * 1.05)
        return cls(low, high, log)

    def __call__(self, value: float) -> float:
        """Where a value is between the ends."""
        if self.log:
            return (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low))
        return (value - self.low) / (self.high - self.low)

    @property
    def middle(self) -> float:
        """What stands halfway."""
        return float((self.low * self.high) ** 0.5) if self.log else (self.low + self.high) / 2


def chart(
    series: Sequence[Series],
    width: int,
    height: int,
    *,
    log: bool = False,
    unit: str = "",
    glyphs: Glyphs = UNICODE,
    dim: str = "",
    label: Any = compact,
) -> Text:
    """`height` lines of `width` signs: values at the left, the curves, and below where they begin and end.

    `label` writes a number of the x axis.
    """
    drawn = [_finite(one, log) for one in series]
    xs = [x for one in drawn for x in one.xs]
    if not xs or height < 2 or width < 12:
        return Text("no numbers yet" if width >= 14 else NOTHING, style=dim)
    across, up = Scale.of(xs), Scale.of([y for one in drawn for y in one.ys], log)
    labels = _labels(up, height - 1)
    left = max(map(len, labels)) + 1
    area = _Area(width - left, height - 1, glyphs)
    for one in drawn:
        area.draw(one, across, up)
    picture = Text(no_wrap=True)
    for text, line in zip(labels, area.lines(), strict=True):
        picture.append(f"{text:>{left - 1}} ", dim)
        picture.append_text(line).append("\n")
    return picture.append(_below(f"{label(min(xs))}", f"{label(max(xs))} {unit}".rstrip(), left, width), dim)


NOTHING = "-"


def _finite(series: Series, log: bool) -> Series:
    """Without what cannot be drawn."""
    pairs = zip(series.xs, series.ys, strict=True)
    fine = [(x, y) for x, y in pairs if isfinite(x) and isfinite(y) and (y > 0 or not log)]
    return Series([x for x, _ in fine], [y for _, y in fine], series.style, series.points)


def _labels(up: Scale, rows: int) -> list[str]:
    """At the top, in the middle, at the bottom."""
    labels = [""] * rows
    if rows >= 5:
        labels[rows // 2] = compact(up.middle)
    labels[-1] = compact(up.low)
    labels[0] = compact(up.high)
    return labels


def _below(first: str, last: str, left: int, width: int) -> str:
    room = width - left
    return " " * left + (
        f"{first}{last:>{room - len(first)}}" if len(first) + len(last) < room else last[:room]
    )


class _Area:
    """Columns of dots, each a number whose bits are the dots from below."""

    def __init__(self, width: int, height: int, glyphs: Glyphs) -> None:
        self.width, self.height, self.glyphs = width, height, glyphs
        self._style = ""
        self._columns = [0] * (2 * width)
        self._points: dict[tuple[int, int], str] = {}

    def draw(self, series: Series, across: Scale, up: Scale) -> None:
        """A series among what is drawn already."""
        dots = [
            (round(across(x) * (2 * self.width - 1)), round(up(y) * (4 * self.height - 1)))
            for x, y in zip(series.xs, series.ys, strict=True)
        ]
        if series.points:
            self._points |= {(self.height - 1 - y // 4, x // 2): series.style for x, y in dots}
            return
        self._style = series.style
        for (x0, y0), (x1, y1) in zip(dots, [*dots[1:], *dots[-1:]], strict=True):
            self._line(x0, y0, x1, y1)

    def _line(self, x0: int, y0: int, x1: int, y1: int) -> None:
        """From one dot to a later one, without gaps."""
        steps = max(1, x1 - x0)
        before = y0
        for step in range(steps + 1 if x1 > x0 else 1):
            y = y1 if x1 == x0 else y0 + round((y1 - y0) * step / steps)
            low, high = min(before, y), max(before, y)
            self._columns[x0 + step] |= ((1 << (high - low + 1)) - 1) << low
            before = y

    def lines(self) -> list[Text]:
        """From above."""
        return [self._row(row) for row in range(self.height)]

    def _row(self, row: int) -> Text:
        shift = 4 * (self.height - 1 - row)
        line = Text("".join(self._sign(column, shift) for column in range(self.width)), self._style, end="")
        for (at, column), style in self._points.items():
            if at == row:
                line = Text.assemble(line[:column], (self.glyphs.point, style), line[column + 1 :], end="")
        return line

    def _sign(self, column: int, shift: int) -> str:
        left, right = self._columns[2 * column] >> shift & 15, self._columns[2 * column + 1] >> shift & 15
        if not left and not right:
            return " "
        return _SIGNS[left][right] if self.glyphs.dots else "*"
