"""Whether everything is compiled: the graphs that a training needs against what a cache has.

Keys are compared, never words of a log: PASS for all says nothing of a graph that was not tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from kitae.precompile.cache_neuron import flags_of
from kitae.precompile.entries import Entry

Reason = Literal[
    "failed", "locked", "half-written", "not compiled", "never seen", "other compiler version", "other flags"
]
_OF_STATE: dict[str, Reason] = {
    "failed": "failed",
    "locked": "locked",
    "half-written": "half-written",
    "empty": "not compiled",
}


@dataclass(frozen=True)
class Needed:
    """A graph that a training will ask for."""

    phase: str
    """What for; empty where it is not known."""
    name: str
    """What the cache calls it."""
    version: str = ""
    """The compiler, where it is known."""


@dataclass(frozen=True)
class Missing:
    """One that has no artefact."""

    phase: str
    name: str
    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.phase or 'unknown phase'}: {self.name}: {self.reason}{detail}"


@dataclass(frozen=True)
class Answer:
    """Yes or no, and why."""

    needed: int
    missing: tuple[Missing, ...]

    @property
    def complete(self) -> bool:
        """Whether nothing has to be compiled any more; no, where nothing was found to be needed."""
        return self.needed > 0 and not self.missing


def answer(needed: Sequence[Needed], entries: Iterable[Entry]) -> Answer:
    """Compare; one that is needed in several phases is named by its first."""
    once = list({(one.name, one.version): one for one in reversed(needed)}.values())[::-1]
    there = list(entries)
    missing = (found for one in once if (found := _missing(one, there)) is not None)
    return Answer(len(once), tuple(missing))


def _missing(one: Needed, entries: Sequence[Entry]) -> Missing | None:
    same = [entry for entry in entries if entry.name == one.name]
    right = [entry for entry in same if one.version in ("", entry.version)]
    if any(entry.state == "done" for entry in right):
        return None
    if right:
        worst = right[0]
        return Missing(one.phase, one.name, _OF_STATE[worst.state], _detail(worst))
    reason, detail = _relative(one, same, entries)
    return Missing(one.phase, one.name, reason, detail)


def _detail(entry: Entry) -> str:
    if entry.state == "locked" and entry.locks:
        return said_of_locks(entry)
    return entry.why


def said_of_locks(entry: Entry) -> str:
    """Of an entry's oldest lock: how old it is, and who holds it."""
    lock = max(entry.locks, key=lambda one: one.age_s)
    whose = {
        "alive": "its process lives" if lock.process is None else f"held by process {lock.process}",
        "gone": "left behind: no compiler runs here (kitae cache clear-locks)",
        "unknown": "whether somebody holds it is unknown",
    }[lock.holder]
    return f"for {age_text(lock.age_s)}, {whose}"


def age_text(seconds: float) -> str:
    """A time span in its largest unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _relative(one: Needed, same: Sequence[Entry], entries: Sequence[Entry]) -> tuple[Reason, str]:
    """Why a graph that is not there is not: a relative of it may be."""
    if same:
        return "other compiler version", f"there with {', '.join(sorted({entry.version for entry in same}))}"
    graph, plus, _ = one.name.partition("+")
    if plus:
        others = [entry for entry in entries if entry.graph == graph and entry.state == "done"]
        if others:
            return "other flags", _flags_of_others(others)
    return "never seen", ""


def _flags_of_others(others: Sequence[Entry]) -> str:
    flags = flags_of(others[0].path)
    said = "" if flags is None else f": {' '.join(flags)}"
    return f"there as {others[0].label}{said}"
