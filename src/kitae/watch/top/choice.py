"""What `kitae top` shows when it is called: a run here, one on a head node, or a machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kitae.errors import RecipeError
from kitae.watch.facts import REMOTE, find_run, runs_in
from kitae.watch.look import seen_in
from kitae.watch.remote import is_remote
from kitae.watch.state import ACTIVE

LOCAL = "local"
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Machine:
    """The one that this is, without a run."""


@dataclass(frozen=True)
class Elsewhere:
    """A head node: a run there, or what is at work there."""

    host: str
    run: Path | None
    """The folder here of a run there, by which it is known what runs kitae there."""
    words: tuple[str, ...]
    """Of the verb there; RUN stands for the run's folder."""


Choice = Path | Machine | Elsewhere


def chosen(run: Path | None, runs: Path, target: str | None, tell: Tell) -> Choice:
    """What to show. Raises `RecipeError`."""
    if run is not None and target is not None:
        raise RecipeError("--target shows a machine, RUN a run, which knows where it is; give one of them")
    if target == LOCAL:
        return Machine()
    if target is not None:
        return _head_node(target, runs)
    found = find_run(run) if run is not None else _at_work(runs, tell)
    if found is None:
        tell(f"no run is at work in {runs}: this machine is shown")
        return Machine()
    return Elsewhere(_host(found), found, ("top", "RUN")) if is_remote(found) else found


def _at_work(runs: Path, tell: Tell) -> Path | None:
    """The run at work with the newest sign of life; head nodes are asked where none is here."""
    paths = runs_in(runs) if runs.is_dir() else []
    here = [path for path in paths if not is_remote(path)]
    for among in (here, [path for path in paths if is_remote(path)]):
        names = [one["run"] for one in seen_in(among, tell) if one["state"] in ACTIVE]
        if names:
            return runs.absolute() / str(names[0])
    return None


def _head_node(host: str, runs: Path) -> Elsewhere:
    """By the newest run here that is there."""
    from kitae.launch.ssh.remote import read_remote

    if host in ("slurm", "ssh"):
        raise RecipeError(f"--target {host}: name the head node as ssh knows it, or local for this machine")
    paths = [path for path in (runs_in(runs) if runs.is_dir() else ()) if is_remote(path)]
    known = [path for path in paths if read_remote(path).host == host]
    if not known:
        return Elsewhere(host, None, ("top",))
    newest = max(known, key=lambda path: (path / REMOTE).stat().st_mtime)
    return Elsewhere(host, newest, ("top", "--runs", f"{read_remote(newest).folder}/runs"))


def _host(run: Path) -> str:
    from kitae.launch.ssh.remote import read_remote

    return read_remote(run).host


def shown_there(there: Elsewhere, options: Sequence[str], terminal: bool) -> int:
    """Do the verb on the head node, in a terminal of its own where there is one; its exit code."""
    from kitae.launch.ssh.terminal import on_host, with_run

    words = [*there.words, *options]
    if there.run is None:
        return on_host(there.host, words, terminal)
    return with_run(there.run, words, terminal)
