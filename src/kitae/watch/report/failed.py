"""The report of a run that does not come to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from kitae.errors import RecipeError, StoppedError

if TYPE_CHECKING:
    from kitae.stages.run_folder import RunFolder


@contextmanager
def report_on_failure(run: RunFolder, tell: Callable[[str], None]) -> Iterator[None]:
    """Write the report also where an attempt fails inside.

    Not where none began, as another process works in the folder, where the recipe was refused, which leaves
    the run as it was, or where it was stopped, to go on later.
    """
    before = run.attempts
    try:
        yield
    except (StoppedError, RecipeError):
        raise
    except Exception:
        if run.attempts > before:
            from kitae.watch.report.write import report_at_end

            with suppress(OSError):  # nobody reads what is told: the error that ended it counts
                report_at_end(run.path, tell)
        raise
