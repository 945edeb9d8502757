"""`kitae cluster update` and `extend`: what stands becomes something else, or ends at another time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kitae.cli.cluster_words import (
    ClusterArgument,
    FileArgument,
    RegionOption,
    SetOption,
    YesOption,
    agree,
    tell,
    where_is,
)

if TYPE_CHECKING:
    from kitae.cluster.extend import Move
    from kitae.cluster.schema import ClusterFile
    from kitae.cluster.up import Build
    from kitae.cluster.update import Update


def add(group: typer.Typer) -> None:
    """Add the verbs of this file."""
    group.command("update")(update)
    group.command("extend")(extend)


def update(
    file: FileArgument,
    changes: SetOption = [],  # noqa: B006 - typer reads the default
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, and change nothing.")] = False,
    yes: YesOption = False,
    stop_fleet: Annotated[
        bool, typer.Option("--stop-fleet", help="Stop the machines of all queues where that is needed.")
    ] = False,
    delete_data: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Agree that data is deleted: the cluster's name, typed."),
    ] = None,
    without_saving: Annotated[
        bool, typer.Option("--without-saving", help="Do not save first what the file says to save.")
    ] = False,
    suppress: Annotated[
        list[str], typer.Option(metavar="VALIDATOR", help="Leave a validator of ParallelCluster out.")
    ] = [],  # noqa: B006 - typer reads the default
) -> None:
    """Change a cluster that stands into what its file says now, after the difference was shown."""
    from kitae.cluster.changing import Leave, change, unfinished
    from kitae.cluster.update_words import plan_lines, refuse_impossible

    build = _build(file, changes, suppress)
    found = _thought(build, wait=not dry_run)
    for line in plan_lines(found):
        print(line, flush=True)
    refuse_impossible(found)
    for line in _trial(found):
        print(line, flush=True)
    nothing = not found.verdicts and not found.rows and not unfinished(found)
    if dry_run or nothing:
        return
    _agree_to_loss(found, delete_data)
    _agree_to_stop(found, stop_fleet, yes)
    agree("change this, and pay for it?", yes)
    change(found, Leave(stop_fleet=True, delete_data=True, saving=not without_saving))
    print(f"{found.new.name} is what {file} says now")


def extend(
    cluster: ClusterArgument,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When AWS ends it: 2026-12-24T18:00Z, '12 hours' after it was made, or '+3 hours'.",
        ),
    ] = None,
    max_cost_usd: Annotated[
        float | None, typer.Option(min=0.01, help="What it may cost in all, US dollars.")
    ] = None,
    region: RegionOption = None,
    yes: YesOption = False,
) -> None:
    """Set another end, later or sooner, never beyond what the cluster may cost without being told so."""
    from datetime import datetime, timezone

    from kitae.cluster.aws import Account
    from kitae.cluster.extend import extend as moved
    from kitae.cluster.extend import move_of, with_limits
    from kitae.cluster.kept import known
    from kitae.errors import RecipeError

    if until is None and max_cost_usd is None:
        raise RecipeError("extend: until when? Give --until, --max-cost-usd, or both")
    name, where, _ = where_is(cluster, region)
    account, now = Account(where), datetime.now(timezone.utc)
    file = with_limits(known(account, name), None, max_cost_usd)
    step = move_of(account, file, until or "+0 minutes", now)
    step = _kept_wish(step, until)
    for line in step.lines():
        print(line, flush=True)
    step = _more_money(step, yes)
    agree("set the switch so?", yes)
    moved(account, _written(step), tell)
    print(
        f"for the file: limits.until: {step.wanted:%Y-%m-%dT%H:%MZ}, limits.max_cost_usd: "
        f"{step.file.limits.max_cost_usd:g}"
    )


def _kept_wish(step: Move, until: str | None) -> Move:
    """Without another time, what was asked for once is asked for again."""
    from dataclasses import replace

    return step if until is not None else replace(step, wanted=step.ends.wanted)


def _written(step: Move) -> Move:
    from dataclasses import replace

    from kitae.cluster.extend import with_limits

    return replace(step, file=with_limits(step.file, f"{step.wanted:%Y-%m-%dT%H:%M:%SZ}", None))


def _more_money(step: Move, yes: bool) -> Move:
    """Ask whether it may cost more, where the money does not last; nobody there is a no."""
    import math
    from dataclasses import replace
    from decimal import Decimal

    from kitae.cluster.extend import with_limits

    if not step.limited:
        return step
    needed = math.ceil(step.budget.cost_until(step.wanted, step.now))
    if yes or not sys.stdin.isatty():
        print(f"for the whole time: --max-cost-usd {needed}", file=sys.stderr)
        return step
    answer = input(f"let it cost up to ${needed:,}, so that it lasts until then? [y/N] ")
    if answer.strip().lower() not in ("y", "yes"):
        return step
    file = with_limits(step.file, None, float(needed))
    return replace(step, file=file, budget=replace(step.budget, most_usd=Decimal(needed)))


def _build(file: Path, changes: list[str], suppress: list[str]) -> Build:
    from datetime import datetime, timezone

    from kitae.cli.cluster_words import engine
    from kitae.cluster.aws import Account
    from kitae.cluster.load import load_cluster
    from kitae.cluster.pcluster import node_missing
    from kitae.cluster.up import Build
    from kitae.cluster.update import ends_now, loaded_for
    from kitae.errors import ClusterError

    loaded, now = load_cluster(file, changes), datetime.now(timezone.utc)
    missing = node_missing()
    if missing is not None:
        raise ClusterError(missing)
    wanted: ClusterFile = loaded.file
    build = Build(Account(wanted.region), engine(), wanted, file, now, tell, tuple(suppress))
    for line in loaded_for(loaded, now, ends_now(build)):
        print(line, file=sys.stderr)
    return build


def _thought(build: Build, *, wait: bool) -> Update:
    from kitae.cluster import up
    from kitae.cluster.update import think, wait_for_running_change

    if wait:
        wait_for_running_change(build.clusters, build.file.name, tell, up.PAUSE_S)
    return think(build)


def _trial(found: Update) -> list[str]:
    from tempfile import TemporaryDirectory

    from kitae.cluster.changing import config_for_trial
    from kitae.cluster.update_words import trial_lines

    with TemporaryDirectory() as folder:
        return trial_lines(found, config_for_trial(found, Path(folder)))


def _agree_to_loss(found: Update, typed: str | None) -> None:
    """Data goes only where the cluster's name was typed. Raises `RecipeError`."""
    from kitae.errors import RecipeError

    if not found.deletes:
        return
    name = found.new.name
    if typed is None and sys.stdin.isatty():
        typed = input("this deletes data; type the name of the cluster to agree: ").strip()
    if typed != name:
        raise RecipeError(
            f"this deletes data, and that was not agreed to; nothing was done; --delete-data {name} agrees "
            "beforehand"
        )


def _agree_to_stop(found: Update, stop_fleet: bool, yes: bool) -> None:
    """Jobs end only where somebody said so. Raises `RecipeError`."""
    from kitae.errors import RecipeError

    if not found.stops or stop_fleet:
        return
    if yes or not sys.stdin.isatty():
        raise RecipeError(
            f"this needs the fleet of {found.new.name} stopped, which ends its jobs; nothing was done; "
            "--stop-fleet says so beforehand"
        )
    agree(f"stop the machines of {found.new.name} for it? Jobs end", False)
