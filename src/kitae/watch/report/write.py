"""Reports as files: of a run, of several, and of a run that has just ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kitae.errors import KitaeError, RecipeError
from kitae.storage.files import replace_file
from kitae.storage.own_file import refuse_other_file
from kitae.watch.report import html, markdown
from kitae.watch.report.contents import report_of
from kitae.watch.state import Jobs

HTML, MARKDOWN = "report.html", "report.md"
"""In a run's folder; of several runs, in the working folder."""
MOST_RUNS = 24
"""That one report compares."""


def write_report(runs: Sequence[Path], to: Path | None = None, *, as_markdown: bool = False) -> Path:
    """Write the report on these runs; where. Raises `RecipeError` or `StorageError`."""
    if len(runs) > MOST_RUNS:
        raise RecipeError(f"{len(runs)} runs are too many for one report; name at most {MOST_RUNS}")
    target = to or (runs[0] if len(runs) == 1 else Path.cwd()) / (MARKDOWN if as_markdown else HTML)
    refuse_other_file(target, _is_report, "report")
    _write(runs, target, as_markdown, None)
    return target


def _is_report(head: bytes, tail: bytes) -> bool:
    return html.MARK.encode() in head or markdown.MARK.encode() in tail


def report_at_end(run: Path, tell: Callable[[str], None]) -> None:
    """Write the report of a run that has ended, and say where it is; never fails, but says so once.

    Without plotly it becomes Markdown. Slurm is not asked for the run's jobs: one of them may be this.
    """
    try:
        _at_end(run, tell)
    except Exception as error:  # the run has its result, whatever becomes of the report
        tell(
            f"warning: the report is not written ({type(error).__name__}: {error}); "
            f"kitae report {run} tries again"
        )


def _at_end(run: Path, tell: Callable[[str], None]) -> None:
    try:
        html.plotly_js()
    except KitaeError:
        _write([run], run / MARKDOWN, True, {})
        tell(f"report         {run / MARKDOWN} (with plots: {html.WITHOUT_PLOTLY}, then kitae report {run})")
        return
    _write([run], run / HTML, False, {})
    tell(f"report         {run / HTML}")


def _write(runs: Sequence[Path], target: Path, as_markdown: bool, jobs: Jobs | None) -> None:
    report = report_of([run.absolute() for run in runs], jobs)
    text = markdown.markdown(report) if as_markdown else html.page(report)
    replace_file(target, text.encode())
