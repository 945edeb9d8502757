"""`kitae metrics`: runs and their machines as numbers for Prometheus and Grafana."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kitae.watch.exporter.collector import RunCollector

MetricsRuns = Annotated[
    list[Path] | None,
    typer.Argument(metavar="RUN", help="Folders of runs, or names in runs/; none: all of --runs."),
]


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command("metrics")(metrics)


def metrics(
    run: MetricsRuns = None,
    runs: Annotated[Path, typer.Option("--runs", help="Folder that holds the runs.")] = Path("runs"),
    everything: Annotated[
        bool, typer.Option("--all", help="Also runs of the folder that ended more than a day ago.")
    ] = False,
    serve: Annotated[bool, typer.Option("--serve", help="Serve them over HTTP, until Ctrl-C.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="To serve on; 0: one that is free.")] = 9808,
    address: Annotated[
        str, typer.Option(help="To serve on; 0.0.0.0: every network of this machine.")
    ] = "127.0.0.1",
    to: Annotated[Path | None, typer.Option("--to", help="Write them into a file, once.")] = None,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Print the dashboard for Grafana.")] = False,
) -> None:
    """Show runs and their machines as metrics: once, in a file, or served for Prometheus."""
    from kitae.errors import RecipeError
    from kitae.watch.exporter.dashboard import dashboard_json

    if sum((serve, to is not None, dashboard)) > 1:
        raise RecipeError("--serve, --to and --dashboard are three ways; give one of them")
    if dashboard:
        print(dashboard_json(), end="")
        return
    from kitae.watch.exporter.serve import serve as served
    from kitae.watch.exporter.serve import text_of, write_text

    collector = _collector(run or [], runs, everything)
    if serve:
        served(collector, address, port, _note)
    elif to is not None:
        write_text(collector, to)
    else:
        print(text_of(collector).decode(), end="")


def _collector(given: list[Path], runs: Path, everything: bool) -> RunCollector:
    from kitae.watch.exporter.collector import RunCollector, is_recent
    from kitae.watch.facts import find_run, is_run, runs_in

    if given:
        paths = list(dict.fromkeys(find_run(path) for path in given))
        return RunCollector(lambda: [path for path in paths if is_run(path)], _note)
    runs_in(runs)  # so that a folder that is not there is an error at once
    wanted: Callable[..., bool] = (lambda status: True) if everything else is_recent
    return RunCollector(lambda: runs_in(runs), _note, wanted)


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
