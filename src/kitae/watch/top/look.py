"""How a picture is drawn: colours of a theme, signs of an encoding, and what the person has chosen to see."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Axis = Literal["steps", "tokens", "time"]
AXES: tuple[Axis, ...] = ("steps", "tokens", "time")


@dataclass(frozen=True)
class Palette:
    """Styles, as rich reads them."""

    dim: str
    strong: str
    good: str
    fair: str
    bad: str
    curve: str
    other_curve: str
    """Of held-out points."""
    track: str
    """What is left of a bar."""

    def of_share(self, share: float | None) -> str:
        """Of a utilisation, 0 to 1: what is idle is bad, as it is paid for."""
        if share is None:
            return self.dim
        return self.bad if share < IDLE else self.fair if share < BUSY else self.good

    def of_filling(self, share: float | None) -> str:
        """Of a memory or disk, 0 to 1: full is bad."""
        if share is None:
            return self.dim
        return self.bad if share > 0.95 else self.fair if share > 0.85 else self.good


IDLE, BUSY = 0.05, 0.5
"""Utilisations below which a core is called idle, and above which it is called busy."""

DARK = Palette("grey58", "bold", "#4ebf71", "#e5b567", "#f2777a", "#6cb6ff", "#f0a6ff", "grey30")
LIGHT = Palette("grey42", "bold", "#1a7f37", "#9a6700", "#c4002b", "#0550ae", "#8250df", "grey78")
PLAIN = Palette(*[""] * 8)


@dataclass(frozen=True)
class Glyphs:
    """Signs that a picture is made of."""

    levels: str
    """Nine, from nothing to all."""
    full: str
    empty: str
    point: str
    dot: str
    """Of an idle core."""
    separator: str
    marker: str
    dots: bool
    """Whether curves are drawn in braille dots, eight to a sign."""


UNICODE = Glyphs(" ▁▂▃▄▅▆▇█", "━", "─", "●", "·", " · ", "◀", True)
ASCII = Glyphs(" .:-=+*%#", "#", "-", "o", ".", " | ", "<", False)


@dataclass(frozen=True)
class View:
    """What is to be seen of a scene, and how."""

    palette: Palette = PLAIN
    glyphs: Glyphs = UNICODE
    node: int = 0
    """0: all nodes; else the number of one, from 1."""
    log_scale: bool = False
    axis: Axis = "steps"
    flops: bool = False
    """FLOP/s of cores in place of their utilisation."""
    paused: bool = False
    own_share: float | None = None
    """Of a core, that the screen itself takes."""

    def with_next_axis(self) -> View:
        """Along steps, tokens or time."""
        return replace(self, axis=AXES[(AXES.index(self.axis) + 1) % len(AXES)])

    def with_next_node(self, nodes: int, by: int = 1) -> View:
        """All nodes, then one after the other."""
        return replace(self, node=(self.node + by) % (nodes + 1) if nodes > 1 else 0)
