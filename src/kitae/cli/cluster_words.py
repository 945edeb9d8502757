"""What the verbs of `kitae cluster` share: options, where a cluster is, and how a person is asked."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kitae.cluster.aws import Account
    from kitae.cluster.pcluster import Engine
    from kitae.cluster.schema import ClusterFile

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A cluster file (YAML).")]
ClusterArgument = Annotated[
    str, typer.Argument(metavar="FILE|NAME", help="A cluster file, or the name of a cluster with --region.")
]
RegionOption = Annotated[str | None, typer.Option(help="AWS region of a cluster that is given by name.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
SetOption = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the file: --set a.b=c.")
]


def where_is(cluster: str, region: str | None) -> tuple[str, str, ClusterFile | None]:
    """Name and region of a cluster, and its file where that was given."""
    from kitae.cluster.load import load_cluster
    from kitae.errors import RecipeError

    if Path(cluster).suffix in (".yaml", ".yml") or Path(cluster).is_file():
        file = load_cluster(cluster).file
        return file.name, file.region, file
    if region is None:
        raise RecipeError(f"--region: where is {cluster}? Give its region, or its file instead of its name")
    return cluster, known_region(region), None


def known_region(region: str) -> str:
    """A region that AWS has. Raises `RecipeError`: else one would wait for an address that is not there."""
    from kitae.catalog.aws import regions
    from kitae.errors import RecipeError
    from kitae.suggest import did_you_mean

    if region not in regions():
        raise RecipeError(f"--region: no region is called {region!r}{did_you_mean(region, regions())}")
    return region


@contextmanager
def interrupted(text: str) -> Iterator[None]:
    """Say what goes on in AWS where somebody stops waiting."""
    try:
        yield
    except KeyboardInterrupt:
        tell(text)
        raise


def as_made(cluster: str, region: str | None) -> tuple[Account, str, ClusterFile | None]:
    """The account, the name, and the file; the one that the account keeps, where only a name was given."""
    from kitae.cluster.aws import Account
    from kitae.cluster.kept import kept

    name, where, file = where_is(cluster, region)
    account = Account(where)
    return account, name, kept(account, name) if file is None else file


def engine() -> Engine:
    """ParallelCluster's environment, made where there is none."""
    from kitae.cluster import pcluster

    return pcluster.find() or pcluster.make(tell)


def tell(text: str) -> None:
    """What goes on, beside what a verb prints."""
    print(text, file=sys.stderr, flush=True)


def agree(question: str, yes: bool) -> None:
    """Ask a person; nobody there is a no. Raises `RecipeError` where it is not agreed."""
    from kitae.errors import RecipeError

    if yes:
        return
    if not sys.stdin.isatty():
        raise RecipeError(f"{question} Nobody is there to ask; --yes says so beforehand")
    if input(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
        raise RecipeError("not agreed; nothing was done")
