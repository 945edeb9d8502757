"""`kitae ps`, `logs`, `cancel` and `resume`: runs that were started, here or on a cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from kitae.cli.elsewhere import NodesOption, PrintOption, TargetOption, flags_of, submitted
from kitae.cli.recipe_verbs import SetOption

FollowedRun = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder of a run, or its name in runs/.")
]


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    for verb in (ps, logs, cancel, resume):
        app.command(verb.__name__)(verb)


def ps(
    runs: Annotated[Path, typer.Option("--runs", help="Folder that holds the runs.")] = Path("runs"),
    everything: Annotated[
        bool, typer.Option("--all", help="Also runs that ended more than a day ago.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show runs: state, step, loss, speed, nodes, time left, cost, last sign of life."""
    from kitae.watch.facts import runs_in
    from kitae.watch.look import is_recent, seen_in
    from kitae.watch.table import print_rows

    found = seen_in(runs_in(runs), _note)
    shown = [one for one in found if everything or is_recent(one)]
    if as_json:
        print(json.dumps(shown, indent=2, ensure_ascii=False))
    elif shown:
        print_rows(shown)
    if len(found) > len(shown):
        _note(f"{len(found) - len(shown)} more ended over a day ago: --all")
    if not found:
        _note(f"there are no runs in {runs}")


def logs(
    run: FollowedRun,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on showing what comes, until the run ends.")
    ] = False,
    rank: Annotated[int, typer.Option(min=0, help="Which process; the first one speaks for all.")] = 0,
    lines: Annotated[int, typer.Option(min=0, help="How many of the last lines.")] = 40,
    first_failure: Annotated[
        bool, typer.Option("--first-failure", help="Find the first real error of all processes.")
    ] = False,
) -> None:
    """Show the log of a run's process, or what failed first."""
    from kitae.errors import RecipeError
    from kitae.watch.facts import find_run
    from kitae.watch.log_view import existing_log
    from kitae.watch.tail import last_lines

    path = find_run(run)
    if first_failure and (follow or rank):
        raise RecipeError("--first-failure looks through all logs once; leave --follow and --rank out")
    flags = [*(["--follow"] if follow else ()), *(["--first-failure"] if first_failure else ())]
    _elsewhere(path, "logs", *flags, "--rank", str(rank), "--lines", str(lines))
    if first_failure:
        _show_first_failure(path, lines)
    elif follow:
        _follow(path, rank, lines)
    else:
        for line in last_lines(existing_log(path, rank), lines):
            print(line)


def _follow(run: Path, rank: int, lines: int) -> None:
    from kitae.watch.log_view import Growing, existing_log, follow, log_path
    from kitae.watch.look import look

    if not look(run).active:
        existing_log(run, rank)
    follow(Growing(log_path(run, rank), lines), lambda: look(run), _print, _note)


def _show_first_failure(run: Path, lines: int) -> None:
    from kitae.watch.first_failure import first_failure
    from kitae.watch.log_view import summary
    from kitae.watch.look import look

    status = look(run)
    found = first_failure(status, lines)
    if found is None:
        _note(f"nothing has failed ({summary(status)})")
        return
    print(f"{found.title}: {found.what}")
    if found.log is not None and found.lines:
        print(f"{found.log}:")
        for line in found.lines:
            print(f"  {line}")


def cancel(
    run: FollowedRun,
    at_once: Annotated[bool, typer.Option("--now", help="Do not save first.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until it has ended.")] = False,
) -> None:
    """Let a run save and end; take its jobs out of the queue."""
    from kitae.errors import KitaeError
    from kitae.launch.slurm.commands import Slurm
    from kitae.watch.cancel import cancel as ended
    from kitae.watch.facts import find_run
    from kitae.watch.log_view import summary
    from kitae.watch.look import look

    path = find_run(run)
    _elsewhere(path, "cancel", *(["--now"] if at_once else ()), *(["--no-wait"] if no_wait else ()))
    status = look(path)
    if not status.active:
        _note(f"there is nothing to end: {summary(status)}")
        return
    status = ended(status, lambda: look(path), Slurm(), _note, at_once=at_once, wait=not no_wait)
    if status.state == "failed":
        raise KitaeError(f"{status.name} failed at its end: {status.why}")
    _note(summary(status))


def resume(
    run: FollowedRun,
    changes: SetOption = [],  # noqa: B006
    target: TargetOption = None,
    nodes: NodesOption = None,
    show: PrintOption = False,
) -> None:
    """Let a run go on that was stopped, failed or died: from its last save, where it was or elsewhere."""
    from kitae.cli.run_verbs import run_here
    from kitae.watch.facts import find_run
    from kitae.watch.look import look
    from kitae.watch.resume import last_stage, recipe_changes, refuse_active, source_of

    path = find_run(run)
    flags = [word for change in changes for word in ("--set", change)]
    flags += ["--target", target] if target else []
    flags += ["--nodes", nodes] if nodes else []
    _elsewhere(path, "resume", *flags, *(["--print"] if show else ()))
    status = look(path)
    refuse_active(status)
    last = last_stage(status.facts)
    own = recipe_changes(path, moved=target is not None or nodes is not None)
    changes = [*own, *changes, *flags_of(target, nodes)]
    if not submitted(path, changes, last, start_over=False, show=show):
        run_here(source_of(path), changes, last)


def _elsewhere(run: Path, verb: str, *options: str) -> None:
    """Do it on the head node, and end, where the run is there."""
    from kitae.watch.remote import done_there, is_remote

    if is_remote(run):
        raise typer.Exit(done_there(run, verb, options))


def _note(line: str) -> None:
    print(line, file=sys.stderr)


def _print(line: str) -> None:
    print(line, flush=True)
