"""The line that shows how far the training is: redrawn on a terminal, now and then a new one elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

Report = Callable[[str], None]
PLAIN_INTERVAL_S = 10.0


@dataclass(frozen=True)
class Standing:
    """Where the training is after an update."""

    step: int
    steps: int
    loss: float
    learning_rate: float
    tokens_per_s: float
    seconds_left: float

    def numbers(self) -> str:
        """Everything but the step, for a person."""
        return (
            f"loss {self.loss:.4f}  lr {self.learning_rate:.2e}  {self.tokens_per_s:,.0f} tokens/s  "
            f"{clock(self.seconds_left)} left"
        )


class Display(Protocol):
    """Shows the training while it is entered."""

    def show(self, standing: Standing) -> None:
        """Show where it is."""
        ...

    def __enter__(self) -> Display: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class PlainDisplay:
    """Lines: the first step, one about every ten seconds, the last step."""

    def __init__(self, report: Report, now: Callable[[], float] = time.monotonic) -> None:
        self._report = report
        self._now = now
        self._next: float | None = None

    def show(self, standing: Standing) -> None:
        """Report a line when one is due."""
        if self._next is None or self._now() >= self._next or standing.step == standing.steps:
            self._next = self._now() + PLAIN_INTERVAL_S
            self._report(f"step {standing.step}/{standing.steps}  {standing.numbers()}")

    def __enter__(self) -> PlainDisplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to put away."""


class LiveDisplay:
    """One line with a bar that is redrawn; what is printed meanwhile appears above it."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("train"), BarColumn(20), MofNCompleteColumn(), TextColumn("{task.fields[numbers]}"),
            console=console,
        )  # fmt: skip
        self._task = self._progress.add_task("train", total=None, numbers="first step")

    def show(self, standing: Standing) -> None:
        """Redraw."""
        self._progress.update(
            self._task, completed=standing.step, total=standing.steps, numbers=standing.numbers()
        )

    def __enter__(self) -> LiveDisplay:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


def display(report: Report) -> Display:
    """Choose by whether standard error is a terminal."""
    return LiveDisplay(Console(stderr=True)) if _on_terminal() else PlainDisplay(report)


def _on_terminal() -> bool:
    # There is no stream where it was closed before the start, as some schedulers do.
    return sys.stderr is not None and sys.stderr.isatty()


def clock(seconds: float) -> str:
    """Write seconds as 12s, 3m05s or 2h07m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
