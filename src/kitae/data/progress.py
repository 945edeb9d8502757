"""A progress bar in bytes, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(label: str, num_bytes: int | None) -> Iterator[Callable[[int], None]]:
    """Give a function that is told of bytes done; it draws when stderr is a terminal, else does nothing."""
    if sys.stderr is None or not sys.stderr.isatty():  # None where it was closed before the start
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=num_bytes)
        yield lambda done: bar.advance(task, done)
