"""Which rank failed first, and how that is told."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kitae.errors import KitaeError, StoppedError, TrainingError
from kitae.launch.order import Launch
from kitae.launch.outcome import Outcome

LAST_LINES = 5
AGAIN = "the last checkpoint is kept; run the same command again to go on from it"
_OF_ITS_OWN = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
"""Signals that a rank does not die of because another one is gone; a transport may abort() for that."""


class RankBugError(Exception):
    """A rank met an error that nobody foresaw."""

    def __init__(self, message: str, log: Path) -> None:
        super().__init__(message)
        self.log = log
        """Holds its traceback."""


@dataclass(frozen=True)
class End:
    """How a rank ended."""

    rank: int
    pid: int
    exit_code: int
    """Minus the signal's number for a signal."""
    outcome: Outcome | None
    """None when it could leave none."""
    ended_here: bool
    """Whether it was killed because of another's failure."""
    noticed_ns: int
    """When its end was noticed, on the clock of outcomes."""

    @property
    def failed(self) -> bool:
        """Whether it ended neither as planned nor for another's sake."""
        if self.outcome is not None:
            return not self.outcome.orderly
        return not self.ended_here

    @property
    def order(self) -> tuple[int, int, int]:
        """The smaller, the nearer to the cause."""
        if self.outcome is not None:
            return (2 if self.outcome.lost_peer else 1), self.outcome.at_ns, self.rank
        if self.pid == 0:  # it never began
            return 0, 0, self.rank
        return (0 if -self.exit_code in _OF_ITS_OWN else 1), self.noticed_ns, self.rank


class NodeLostError(TrainingError):
    """A machine is gone, or not fit to be used."""

    def __init__(self, message: str, node: str, reason: str = "gone in the middle of the work") -> None:
        super().__init__(message)
        self.node = node
        """Its name."""
        self.reason = reason
        """Why it should be left out."""


def error_of(outcome: Outcome) -> BaseException:
    """What an outcome that is no success was raised as."""
    if outcome.kind in _SAME:
        return _SAME[outcome.kind]()
    error: KitaeError = outcome.error_class(outcome.message)
    return error


def result_of(ends: Sequence[End], launch: Launch) -> BaseException | None:
    """What the launch ends with: the first failure, the stop that all agreed on, or None for success."""
    failed = sorted((end for end in ends if end.failed), key=lambda end: end.order)
    if failed:
        return _told(failed[0], ends[0], launch)
    stopped = [end.outcome for end in ends if end.outcome is not None and end.outcome.kind == "stopped"]
    return StoppedError(stopped[0].message) if stopped else None


def _told(end: End, leader: End, launch: Launch) -> BaseException:
    if end.outcome is None:
        return _died(end, launch)
    if end.outcome.kind in _SAME:
        return _SAME[end.outcome.kind]()
    # An error that all ranks agree on is told as that of the one that speaks for all.
    shared = leader.outcome is not None and leader.outcome.message == end.outcome.message
    by = "" if shared or end.rank == 0 else f"rank {end.rank}: "
    if end.outcome.kind == "bug":
        return RankBugError(f"{by}{end.outcome.message}", launch.log(end.rank))
    error: KitaeError = end.outcome.error_class(f"{by}{end.outcome.message}")
    return error


_SAME: dict[str, type[BaseException]] = {"interrupted": KeyboardInterrupt, "unread": BrokenPipeError}
"""Ends that the command line knows how to tell by the exception alone."""


def _died(end: End, launch: Launch) -> TrainingError:
    """A rank that said nothing: killed, crashed, or left by code that ended the process."""
    if end.exit_code < 0:
        name = signal.Signals(-end.exit_code).name
        how = f"was killed by {name}{_HINTS.get(name, '')}"
    else:
        how = f"ended with code {end.exit_code} and said nothing"
    lines = last_lines(launch.log(end.rank))
    where = f" on {launch.name_of(end.rank)}" if launch.nodes > 1 else ""
    return TrainingError(f"rank {end.rank} (process {end.pid}{where}) {how}; {AGAIN}{lines}")


_HINTS = {"SIGKILL": " (out of memory?)", "SIGBUS": " (a full /dev/shm, or a file that was cut?)"}


def last_lines(log: Path) -> str:
    """The end of a rank's log, as further lines of a message; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 4096))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    shown = "".join(f"\n  {line}" for line in lines[-LAST_LINES:])
    return f"\nlast lines of {log}:{shown}" if shown else ""
