"""`kitae top`: a run, its machines and its money on one screen."""

from __future__ import annotations

import json
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kitae.watch.top.choice import Machine
    from kitae.watch.top.source import Source

_COLUMNS = 100
"""Of a picture that does not go to a terminal."""


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command("top")(top)


def top(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUN]", help="The folder of a run, or its name in runs/; else the newest at work."
        ),
    ] = None,
    runs: Annotated[Path, typer.Option("--runs", help="Folder that holds the runs.")] = Path("runs"),
    target: Annotated[
        str | None,
        typer.Option(
            metavar="local|HOST", help="This machine without a run, or what is at work on a head node."
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print one picture as plain text.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what there is to see as JSON.")] = False,
    period: Annotated[float, typer.Option(min=0.2, max=3600.0, help="Seconds between two looks.")] = 1.0,
) -> None:
    """Show a run live: cores, curves, ranks, money, time left, alarms, log."""
    from kitae.watch.top.choice import Elsewhere, chosen, shown_there

    live = not once and not as_json and _on_terminal()
    choice = chosen(run, runs, target, _note)
    if isinstance(choice, Elsewhere):
        options = ["--json"] if as_json else [] if live else ["--once"]
        raise typer.Exit(shown_there(choice, [*options, "--period", f"{period:g}"], live))
    if live:
        _refuse_without_textual()
    source = _source(choice, period)
    try:
        _show(source, period, as_json=as_json, live=live)
    finally:
        source.close()


def _show(source: Source, period: float, *, as_json: bool, live: bool) -> None:
    first = source.look()
    while not live and first.read_share < 1:
        first = source.look()
    if as_json:
        print(json.dumps(first.as_json(), indent=2, ensure_ascii=False))
    elif live:
        from kitae.watch.top.app import run_app

        run_app(source, first, period)
    else:
        from kitae.watch.top.frame import frame

        columns = shutil.get_terminal_size((_COLUMNS, 40)).columns
        print(frame(first, columns, getattr(sys.stdout, "encoding", None) or "ascii"))


def _source(choice: Path | Machine, period: float) -> Source:
    from kitae.watch.top.machine import MachineSource
    from kitae.watch.top.source import RunSource

    return RunSource(choice) if isinstance(choice, Path) else MachineSource(period)


def _on_terminal() -> bool:
    """Whether somebody can look at a screen, and press keys."""
    streams = (sys.stdin, sys.stdout)
    return all(one is not None and one.isatty() for one in streams) and os.environ.get("TERM") != "dumb"


def _refuse_without_textual() -> None:
    from kitae.errors import RecipeError

    if find_spec("textual") is None:
        raise RecipeError(
            "the live screen needs Textual, which is not installed; install it with: pip install "
            "'kitae[watch]', or print one picture with: kitae top --once"
        )


def _note(line: str) -> None:
    print(line, file=sys.stderr)
