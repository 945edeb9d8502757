"""`kitae cluster cost`, `list`, `ssh` and `logs`: what there is, what it costs, and what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kitae.cli.cluster_words import ClusterArgument, RegionOption, as_made, known_region, tell

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from kitae.cluster.listing import Found
    from kitae.cluster.logs import LogLine

KeyOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Private key of the key pair.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def add(group: typer.Typer) -> None:
    """Add the verbs of this file."""
    group.command("cost")(cost)
    group.command("list")(list_)
    group.command("ssh")(ssh)
    group.command("logs")(logs)


def cost(cluster: ClusterArgument, region: RegionOption = None, as_json: JsonOption = False) -> None:
    """Show what a cluster has cost so far, by thing and by day, what it costs now, and what is left."""
    from datetime import datetime, timezone

    from kitae.cluster.reckoning import as_json as shown
    from kitae.cluster.reckoning import lines, reckon

    account, name, _ = as_made(cluster, region)
    found = reckon(account, name, datetime.now(timezone.utc))
    if as_json:
        print(json.dumps(shown(found)))
        return
    for line in lines(found):
        print(line)


def list_(
    region: Annotated[
        list[str], typer.Option(help="Look there alone; may be given again. Else: in every region.")
    ] = [],  # noqa: B006 - typer reads the default
    as_json: JsonOption = False,
) -> None:
    """List all clusters of the account: where, since when, until when, and what they cost now."""
    from kitae.cluster.aws import Account
    from kitae.cluster.listing import clusters_of, regions_of

    regions = [known_region(one) for one in region] or regions_of(Account(_some_region()))
    found = clusters_of(Account, regions, tell)
    for one in found if as_json else []:
        print(json.dumps(one.line()))
    if as_json:
        return
    for line in _table(found):
        print(line)
    if not found:
        where = ", ".join(regions) if len(regions) < 4 else f"{len(regions)} regions"
        print(f"there is no cluster in {where}")


def ssh(
    cluster: ClusterArgument,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND...]", help="Run this there, instead of a shell."),
    ] = None,
    region: RegionOption = None,
    node: Annotated[
        str, typer.Option(help="A node behind the head node: its name in Slurm, address or id.")
    ] = "",
    key: KeyOption = None,
    user: Annotated[str | None, typer.Option(help="Log in as; else as the image has it.")] = None,
) -> None:
    """Go to the head node by ssh, or through it to another; the exit code is that of the command."""
    from kitae.cluster.login import Visit, door_of, go, key_of, node_of, unreached, user_of, warning

    account, name, file = as_made(cluster, region)
    door = door_of(account, name)
    visit = Visit(
        door, user or user_of(file), key_of(door, key), node_of(account, name, node), tuple(command or ())
    )
    said = warning(account, door)
    if said is not None:
        tell(f"warning: {said}")
    code = go(visit)
    if unreached(code):
        tell(f"ssh did not come through to {name}" + ("" if said is None else f": {said}"))
    raise typer.Exit(code)


def logs(
    cluster: ClusterArgument,
    region: RegionOption = None,
    node: Annotated[
        str, typer.Option(help="Of this node alone: head, a host name or its beginning, or an id.")
    ] = "",
    log: Annotated[
        list[str],
        typer.Option(help="bootstrap, slurm, fleet, system, or a log's own name; may be given again."),
    ] = [],  # noqa: B006 - typer reads the default
    since: Annotated[
        str | None, typer.Option(help="From then on: a time, or a length such as '2 hours'.")
    ] = None,
    lines: Annotated[int, typer.Option(min=1, help="So many lines at the end.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as they come; Ctrl-C ends it.")] = False,
    available: Annotated[bool, typer.Option("--list", help="Say which logs there are.")] = False,
    by_ssh: Annotated[
        bool, typer.Option("--by-ssh", help="Read them on the node itself, by ssh: newer, and kitae's own.")
    ] = False,
    key: KeyOption = None,
) -> None:
    """Print logs of nodes, also of those that are gone, and the first error in plain words."""
    if by_ssh:
        _logs_by_ssh(cluster, region, node, key, log, lines, follow)
        return
    from datetime import datetime, timedelta, timezone

    from kitae.cluster.logs import Wanted, chosen, tails
    from kitae.cluster.logs import follow as followed
    from kitae.cluster.logs import lines as read

    account, name, _ = as_made(cluster, region)
    now = datetime.now(timezone.utc)
    begin = None if since is None else _begin(since, now)
    wanted = Wanted(node, tuple(log), begin)
    streams = chosen(account, name, wanted)
    if available:
        for one in streams:
            last = "never" if one.last is None else f"{one.last:%Y-%m-%d %H:%M:%S}"
            print(f"{one.host or '?'}  {one.machine}  {one.log}  last line {last}")
        return
    found = tails(account, streams, lines) if begin is None else list(read(account, streams, begin))
    for line in found[-lines:]:
        print(line.shown(), flush=True)
    _say_trouble(line.text for line in found)
    if follow:
        at = found[-1].time + timedelta(milliseconds=1) if found else now
        followed(account, lambda: chosen(account, name, wanted), at, _print_line)


def _logs_by_ssh(
    cluster: str,
    region: str | None,
    node: str,
    key: Path | None,
    log: list[str],
    lines: int,
    follow: bool,
) -> None:
    from kitae.cluster.login import Visit, door_of, go, key_of, node_of, read, tail_words, unreached, user_of
    from kitae.errors import ClusterError

    account, name, file = as_made(cluster, region)
    door, head = door_of(account, name), node in ("", "head")
    words = tail_words(log, lines, head=head, follow=follow)
    there = "" if head else node_of(account, name, node)
    visit = Visit(door, user_of(file), key_of(door, key), there, words)
    if follow:
        raise typer.Exit(go(visit))
    code, found = read(visit)
    for line in found:
        print(line)
    if unreached(code):
        raise ClusterError(f"ssh did not come through to {name}; kitae cluster ssh {name} says more")
    _say_trouble(found)


def _print_line(line: LogLine) -> None:
    print(line.shown(), flush=True)


def _say_trouble(found: Iterable[str]) -> None:
    from kitae.cluster.troubles import plain_words

    said = plain_words(found)
    if said is not None:
        tell(f"the first error: {said}")


def _begin(since: str, now: datetime) -> datetime:
    from datetime import timedelta

    from kitae.cluster.moments import is_span, moment, seconds_of
    from kitae.errors import RecipeError

    try:
        return now - timedelta(seconds=seconds_of(since)) if is_span(since) else moment(since)
    except ValueError:
        raise RecipeError(
            f"--since: {since!r} is no time; write one such as 2026-12-24T18:00Z, or '2 hours'"
        ) from None


def _some_region() -> str:
    """Any region: they all know the others."""
    import os

    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def _table(found: Sequence[Found]) -> list[str]:
    from kitae.cluster.money import dollars

    head = ("cluster", "region", "state", "since", "an hour", "AWS ends it", "made by")
    rows = [
        (
            one.name,
            one.region,
            one.state,
            "?" if one.since is None else f"{one.since:%Y-%m-%d %H:%M}",
            "?" if one.usd_an_hour is None else dollars(one.usd_an_hour),
            one.until or "never",
            one.maker,
        )
        for one in found
    ]
    if not rows:
        return []
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    padded = ([f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)] for row in (head, *rows))
    return ["  ".join(row).rstrip() for row in padded]
