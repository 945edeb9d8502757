"""The logs of a run's ranks: their last lines, and what is written to them from now on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kitae.errors import RecipeError
from kitae.watch.status import Status
from kitae.watch.table import first_line
from kitae.watch.tail import end_of_lines, last_lines

READ_S = 0.5
LOOK_S, LOOK_AT_JOBS_S = 1.0, 10.0
"""How often it is looked whether the run goes on; Slurm, which serves many, is asked less often."""

Tell = Callable[[str], None]


def log_path(run: Path, rank: int) -> Path:
    """Where a rank writes."""
    return run / "logs" / f"rank-{rank}.log"


def existing_log(run: Path, rank: int) -> Path:
    """The log of a rank. Raises `RecipeError` where it has none, and says which have."""
    path = log_path(run, rank)
    if path.is_file():
        return path
    ranks = ranks_with_logs(run)
    there = f"there are those of ranks {ranks[0]} to {ranks[-1]}" if ranks else "no process has begun yet"
    raise RecipeError(f"{run} has no log of rank {rank}; {there}")


def ranks_with_logs(run: Path) -> list[int]:
    """Ranks that have written a log, in any attempt."""
    numbers = (one.stem.removeprefix("rank-") for one in (run / "logs").glob("rank-*.log"))
    return sorted(int(number) for number in numbers if number.isdecimal())


class Growing:
    """A file that others write to; it may not be there yet, be cut, or be replaced."""

    def __init__(self, path: Path, count: int) -> None:
        self._path = path
        self._position = 0
        self._file: tuple[int, int] | None = None
        self._rest = b""
        self._before = count
        """Lines that are shown of what is there at the beginning."""

    def lines(self) -> Iterator[str]:
        """Whole lines that have come since the last call; at the first one, the last of those before."""
        try:
            stat = self._path.stat()
        except OSError:
            return
        identity = (stat.st_dev, stat.st_ino)
        if self._file is None:
            yield from self._begin()
        elif identity != self._file or stat.st_size < self._position:
            self._position, self._rest = 0, b""
        self._file = identity
        yield from self._read()

    def _begin(self) -> Iterator[str]:
        """Show the last whole lines, and go on behind them."""
        self._position = end_of_lines(self._path)
        yield from last_lines(self._path, self._before, self._position)

    def _read(self) -> Iterator[str]:
        with self._path.open("rb") as file:
            file.seek(self._position)
            content = self._rest + file.read()
            self._position = file.tell()
        *lines, self._rest = content.split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")

    def rest(self) -> str:
        """What stands behind the last line end."""
        return self._rest.decode(errors="replace")


def follow(
    log: Growing,
    look: Callable[[], Status],
    write: Tell,
    tell: Tell,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Status:
    """Write the lines of a log as they come, through all attempts, until the run has ended; how it is then.

    `tell` gets what changes besides: that it waits, for what, and how it ended.
    """
    status, looked = look(), now()
    told = _tell_change("", status, tell)
    while True:
        # Looked before it is read: what was written up to the end is then read, too.
        if now() - looked >= (LOOK_AT_JOBS_S if status.facts.jobs else LOOK_S):
            status, looked = look(), now()
            told = _tell_change(told, status, tell)
        for line in log.lines():
            write(line)
        if not status.active:
            if log.rest():
                write(log.rest())
            return status
        sleep(READ_S)


def _tell_change(before: str, status: Status, tell: Tell) -> str:
    what = summary(status)
    if what != before and (before or status.state != "running"):
        tell(what)
    return what


def summary(status: Status) -> str:
    """A run's state in one line."""
    # A job's state of every moment is no news.
    why = "" if status.state == "running" else first_line(status.why)
    return f"{status.name}: {status.state}{': ' if why else ''}{why}"
