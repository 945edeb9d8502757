"""`kitae cluster`: clusters on AWS, from a file to nothing left."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A cluster file (YAML).")]
SetOption = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the file: --set a.b=c.")
]


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    group = typer.Typer(no_args_is_help=True, help="Make, watch and take down clusters on AWS.")
    group.command("init")(init)
    group.command("check")(check)
    group.command("engine")(engine)
    group.command("policy")(policy)
    group.command("quota")(quota)
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
    from kitae.storage.files import replace_file

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


def engine() -> None:
    """Make the environment that ParallelCluster runs in, unless it is there."""
    from kitae.cluster.pcluster import find, make, node_missing

    found = find() or make(lambda text: print(text, file=sys.stderr))
    print(f"{found.folder}: ParallelCluster {found.version()}")
    missing = node_missing()
    if missing is not None:
        print(f"warning: {missing}", file=sys.stderr)
