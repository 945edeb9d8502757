"""Runs on a cluster behind a head node: the same verbs, done there."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kitae.errors import ClusterError
from kitae.watch.facts import REMOTE


def is_remote(run: Path) -> bool:
    """Whether a folder stands for a run on a head node."""
    return (run / REMOTE).is_file()


def done_there(run: Path, verb: str, options: Sequence[str]) -> int:
    """Do a verb with the run where it is; its exit code."""
    from kitae.launch.ssh.following import run_there

    return run_there(run, [verb, "RUN", *options])


def seen_there(runs: Sequence[Path], tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """What `kitae ps` says of runs where they are; each folder on a head node is asked once."""
    from kitae.launch.ssh.remote import read_remote

    remotes = {run: read_remote(run) for run in runs}
    places = {(remote.host, remote.folder): run for run, remote in remotes.items()}
    found = {place: _asked(run, f"{place[1]}/runs", tell) for place, run in places.items()}
    return [
        {**found[remote.host, remote.folder][remote.name], "run": run.name, "head": remote.host}
        for run, remote in remotes.items()
        if remote.name in found[remote.host, remote.folder]
    ]


def _asked(run: Path, folder: str, tell: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """By name, all runs in a folder of the head node that a run is on; none where it does not answer."""
    from kitae.launch.ssh.following import output_there

    try:
        answer = output_there(run, ["ps", "--json", "--all", "--runs", folder], tell)
        return {one["run"]: one for one in json.loads(answer)}
    except (ClusterError, ValueError) as error:
        tell(f"{run.name} and what else is there cannot be seen: {error}")
        return {}
