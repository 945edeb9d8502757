"""`kitae report`: a page to share about one run, or about several beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ReportedRuns = Annotated[
    list[Path],
    typer.Argument(metavar="RUN...", help="Folders of runs, or their names in runs/; several are compared."),
]


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command("report")(report)


def report(
    runs: ReportedRuns,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", help="File to write; default: report.html in the run's folder, of several here."
        ),
    ] = None,
    md: Annotated[
        bool, typer.Option("--md", help="Write Markdown, without plots; needs no extra package.")
    ] = False,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser of this machine.")] = False,
) -> None:
    """Write a page about runs: result, curves, recipe, data, plan and what came of it, attempts, cost."""
    from kitae.watch.facts import find_run
    from kitae.watch.report.write import write_report

    found = list(dict.fromkeys(find_run(run) for run in runs))
    target = write_report(found, to, as_markdown=md)
    print(target)
    if show:
        _open(target)


def _open(path: Path) -> None:
    import sys
    import webbrowser

    if not webbrowser.open(path.absolute().as_uri()):
        print("there is no browser here that could be opened", file=sys.stderr)
