"""`kitae cluster`: clusters on AWS, from a file to nothing left."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kitae.cli import cluster_change, cluster_look
from kitae.cli.cluster_words import (
    ClusterArgument,
    FileArgument,
    RegionOption,
    SetOption,
    YesOption,
    agree,
    as_made,
    interrupted,
    known_region,
    tell,
    where_is,
)
from kitae.cli.cluster_words import engine as engine_here

if TYPE_CHECKING:
    from kitae.cluster.engine_calls import Clusters
    from kitae.cluster.up import Build


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    group = typer.Typer(no_args_is_help=True, help="Make, watch and take down clusters on AWS.")
    group.command("init")(init)
    group.command("check")(check)
    group.command("up")(up)
    group.command("status")(status)
    group.command("stop")(stop)
    group.command("start")(start)
    group.command("down")(down)
    group.command("leftovers")(leftovers)
    group.command("engine")(engine)
    group.command("policy")(policy)
    group.command("quota")(quota)
    cluster_change.add(group)
    cluster_look.add(group)
    app.add_typer(group, name="cluster")


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("cluster.yaml"),
    name: Annotated[str, typer.Option(help="Name of the cluster.")] = "kitae",
    region: Annotated[str, typer.Option(help="AWS region.")] = "us-west-2",
    instance: Annotated[str, typer.Option(help="Type of the machines.")] = "trn1.32xlarge",
    nodes: Annotated[int, typer.Option(min=1, help="Machines at most.")] = 4,
) -> None:
    """Write a cluster file with comments."""
    from kitae.cluster.starter import Wish, starter_text
    from kitae.errors import RecipeError
    from kitae.storage.files import replace_file

    if file.exists():
        raise RecipeError(f"{file}: it exists already; name another file, or remove it")
    replace_file(file, starter_text(Wish(name, region, instance, nodes)).encode())
    print(f"{file} is written; kitae cluster check {file} says what it costs and what is wrong with it")


def check(file: FileArgument, changes: SetOption = []) -> None:  # noqa: B006 - typer reads the default
    """Check a cluster file without an account, and write ParallelCluster's configuration beside it."""
    from datetime import datetime, timezone

    from kitae.cluster.checking import checked

    report = checked(file, changes, datetime.now(timezone.utc))
    for line in report.remarks:
        print(line, file=sys.stderr)
    for line in report.lines:
        print(line)


def policy(
    file: FileArgument,
    changes: SetOption = [],  # noqa: B006 - typer reads the default
    account: Annotated[str, typer.Option(help="Number of the account; * leaves it open.")] = "*",
    write: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write policy-1.json and so on there.")
    ] = None,
) -> None:
    """Print the permissions that this cluster needs, as policies of IAM, and no others."""
    import json

    from kitae.cluster.load import load_cluster
    from kitae.cluster.policy import Scope, policies
    from kitae.errors import RecipeError
    from kitae.storage.files import replace_file

    if account != "*" and not (account.isascii() and account.isdigit() and len(account) == 12):
        raise RecipeError(f"--account: {account!r} is no number of an account; it has 12 digits")
    found = policies(Scope.of(load_cluster(file, changes).file, account))
    if write is None:
        print(json.dumps(found, indent=2))
        return
    for number, one in enumerate(found, 1):
        path = write / f"policy-{number}.json"
        replace_file(path, json.dumps(one, indent=2).encode())
        print(f"{path} is written")


def quota(
    file: FileArgument,
    changes: SetOption = [],  # noqa: B006 - typer reads the default
    request: Annotated[
        bool, typer.Option("--request", help="Ask AWS for quotas that are too small.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ask the account whether it can have this cluster: login, permissions, quotas, zones, names, prices."""
    from datetime import datetime, timezone

    from kitae.cluster.account_check import Question, ask, refuse_wrong, row
    from kitae.cluster.aws import Account
    from kitae.cluster.checking import checked

    now = datetime.now(timezone.utc)
    loaded = checked(file, changes, now).loaded
    answers = []
    for name, answer in ask(Question(Account(loaded.file.region), loaded.file, now, request)):
        answers.append((name, answer))
        print(row(name, answer, as_json=as_json), flush=True)
    refuse_wrong(answers)


def up(
    file: FileArgument,
    changes: SetOption = [],  # noqa: B006 - typer reads the default
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, and make nothing.")] = False,
    yes: YesOption = False,
    suppress: Annotated[
        list[str], typer.Option(metavar="VALIDATOR", help="Leave a validator of ParallelCluster out.")
    ] = [],  # noqa: B006 - typer reads the default
) -> None:
    """Make the cluster, after its plan and its cost were shown; or go on making it."""
    from kitae.cluster.engine_calls import WOULD_SUCCEED
    from kitae.cluster.up import dry_run as tried
    from kitae.cluster.up import plan_lines
    from kitae.cluster.up import up as made

    build = _build(file, changes, suppress)
    for line in plan_lines(build.file, build.now):
        print(line, flush=True)
    if dry_run:
        how = tried(build)
        print(f"ParallelCluster, asked {how}: {WOULD_SUCCEED}")
        return
    agree("make this, and pay for it?", yes)
    with interrupted(
        f"{build.file.name} goes on being made, and bills: the same command goes on with it, kitae cluster "
        f"down {file} takes it away, and the switch ends it in any case"
    ):
        found = made(build)
    print(f"{found.name} stands; its head node is {found.head_address}")
    print(f"kitae cluster down {file} takes it away")


def status(
    cluster: ClusterArgument,
    region: RegionOption = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Go on telling what changes; stop the fleet when boots fail in a loop."),
    ] = False,
) -> None:
    """Show what stands of a cluster, what it costs now, and when it ends."""
    from datetime import datetime, timezone

    from kitae.cluster.status import status_lines, status_of
    from kitae.cluster.watching import Vigil, keep_watch, watch_lines

    account, name, file = as_made(cluster, region)
    now = datetime.now(timezone.utc)
    found = status_of(account, name, {} if file is None else file.prices)
    for line in status_lines(name, found, now):
        print(line)
    for line in watch_lines(account, name, file, now):
        print(line, flush=True)
    if watch:
        keep_watch(Vigil(account, _clusters(account.region), name, file, tell))


def stop(cluster: ClusterArgument, region: RegionOption = None, yes: YesOption = False) -> None:
    """Stop the machines of all queues; head node, storage and network go on, and bill."""
    from kitae.cluster.aws import Account
    from kitae.cluster.fleet import machines_of

    name, where, _ = where_is(cluster, region)
    states = [one for of_queue in machines_of(Account(where), name).values() for one, _ in of_queue.values()]
    running = sum(one in ("pending", "running") for one in states)
    agree(f"stop {running} machines of {name}, and the jobs on them?", yes)
    _clusters(where).fleet(name, start=False)
    print(f"{name}: its machines stop; head node, storage and network bill on (kitae cluster status)")


def start(cluster: ClusterArgument, region: RegionOption = None, yes: YesOption = False) -> None:
    """Let machines start again: those that are always on do, and bill."""
    import time
    from datetime import datetime, timezone

    from kitae.cluster.extend import within_budget
    from kitae.cluster.fleet import await_fleet
    from kitae.cluster.kept import kept

    account, name, file = as_made(cluster, region)
    agree(f"let machines of {name} start, and pay for them?", yes)
    if kept(account, name) is not None:
        within_budget(account, name, tell, datetime.now(timezone.utc))
    clusters = _clusters(account.region)
    clusters.fleet(name, start=True)
    print(f"{name}: its machines start when jobs ask for them, and those that are always on now", flush=True)
    if file is not None:
        with interrupted(f"machines of {name} go on starting, and bill; kitae cluster stop ends that"):
            await_fleet(account, clusters, file, tell, time.monotonic)


def down(
    cluster: ClusterArgument,
    region: RegionOption = None,
    yes: YesOption = False,
    without_saving: Annotated[
        bool, typer.Option("--without-saving", help="Delete what the file says to save, too.")
    ] = False,
) -> None:
    """Take a cluster away until nothing of it is left that bills, and prove it."""
    from kitae.cluster.down import Ending
    from kitae.cluster.down import down as ended
    from kitae.cluster.leftovers import scan
    from kitae.cluster.saving import save_first

    account, name, file = as_made(cluster, region)
    prices = {} if file is None else file.prices
    found = scan(account, name, prices)
    for one in found:
        print(f"{one.kind.name} {one.thing.id} {one.thing.detail}".rstrip())
    agree(f"delete all of {name} in {account.region}: {len(found)} things, data with them?", yes)
    clusters = _clusters(account.region)
    if file is not None and file.save and not without_saving:
        save_first(account, clusters, file, found, tell)
    keeps = file is not None and file.fsx is not None and file.fsx.at_down == "keep"
    ending = Ending(account, clusters, name, tell, frozenset({"file system"} if keeps else ()), prices)
    with interrupted(f"what is left of {name} bills on; the same command goes on taking it away"):
        kept = ended(ending)
    for one in kept:
        print(f"kept, as the file says: {one.line()}")
    print(f"nothing {'else ' if kept else ''}of {name} is left in {account.region}")


def leftovers(
    region: Annotated[str, typer.Option(help="AWS region.")] = "us-west-2",
    name: Annotated[str | None, typer.Option(help="Of this cluster alone.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look for everything of clusters in a region that may bill; exit code 8 where something is left."""
    import json

    from kitae.cluster.aws import Account
    from kitae.cluster.leftovers import scan, total
    from kitae.cluster.money import dollars
    from kitae.errors import ClusterError

    found = scan(Account(known_region(region)), name)
    for one in found:
        facts = {
            "kind": one.kind.name,
            "id": one.thing.id,
            "tags": dict(one.thing.tags),
            "remove": one.command,
        }
        usd = None if one.usd is None else str(one.usd)
        print(json.dumps({**facts, "usd_an_hour": usd}) if as_json else one.line())
    of = "any cluster" if name is None else name
    if found:
        raise ClusterError(
            f"{len(found)} things of {of} are in {region}; they bill {dollars(total(found))} an hour, where "
            "the price is known"
        )
    print(f"nothing of {of} is left in {region}")


def engine() -> None:
    """Make the environment that ParallelCluster runs in, unless it is there."""
    from kitae.cluster.pcluster import find, make, node_missing

    found = find() or make(lambda text: print(text, file=sys.stderr))
    print(f"{found.folder}: ParallelCluster {found.version()}")
    missing = node_missing()
    if missing is not None:
        print(f"warning: {missing}", file=sys.stderr)


def _build(file: Path, changes: list[str], suppress: list[str]) -> Build:
    from datetime import datetime, timezone

    from kitae.cluster.aws import Account
    from kitae.cluster.checking import checked
    from kitae.cluster.pcluster import node_missing
    from kitae.cluster.up import Build
    from kitae.errors import ClusterError

    now = datetime.now(timezone.utc)
    report = checked(file, changes, now)
    for line in report.remarks:
        print(line, file=sys.stderr)
    missing = node_missing()
    if missing is not None:
        raise ClusterError(missing)
    wanted = report.loaded.file
    return Build(Account(wanted.region), engine_here(), wanted, file, now, tell, tuple(suppress))


def _clusters(region: str) -> Clusters:
    from kitae.cluster.engine_calls import Clusters

    return Clusters(engine_here(), region)
