"""Ranks on this machine: started, watched, stopped together, and none left behind."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kitae.errors import StorageError, TrainingError
from kitae.launch.agent import Agent
from kitae.launch.environment import check_ranks, surrounded
from kitae.launch.heartbeat import make_heartbeat
from kitae.launch.node_end import NodeEnd, result_of_nodes
from kitae.launch.order import Launch, Order
from kitae.launch.outcome import outcome_of
from kitae.launch.stops import Stops
from kitae.launch.supervisor import Supervisor
from kitae.storage.lock import exclusive

LOOK_S = 0.2
"""How often the ranks are looked at."""
_LOCK = "lock"


def launch_ranks(entry: str, arguments: Mapping[str, Any], launch: Launch) -> None:
    """Call `entry` (`module:function`, with `mesh` and JSON arguments by name) in every rank, and wait.

    Rank 0 has the terminal; the others write to their logs. Returns when the function has returned in all
    ranks. Raises the first failure as the `KitaeError` that it was (`RankBugError` for what nobody foresaw,
    `TrainingError` for a rank that died or got stuck), `StoppedError` after a stop signal, which is passed on
    to the ranks, KeyboardInterrupt after a second Ctrl-C, which ends them at once, and `RecipeError` for a
    variable of this machine that must not be set, or a number of ranks that it cannot have.
    """
    check_ranks(launch.backend, launch.local_size, several=False)
    with surrounded(launch.backend, launch.precision), Stops(launch.on_stop) as stops:
        result = result_of_nodes([run_ranks(entry, arguments, launch, stops)], launch, stops.asked)
    if result is not None:
        show_cursor()
        raise result


def run_ranks(entry: str, arguments: Mapping[str, Any], launch: Launch, stops: Stops) -> NodeEnd:
    """Start the ranks of this machine and wait for them; how they ended."""
    with _folder(launch) as folder:
        order = Order(launch, entry, arguments, os.getpid(), folder)
        _lay_out(order)
        agent = Agent(order)
        supervisor = Supervisor(order, stops)
        agent.start()
        try:
            while agent.is_alive():
                agent.join(LOOK_S)
                supervisor.look()
        finally:
            while agent.is_alive():
                supervisor.kill()
                agent.join(LOOK_S)
        if agent.error is not None:
            error = TrainingError(f"the processes could not be started: {agent.error}")
            return NodeEnd(launch.name, (), outcome_of(error))
        return supervisor.end(agent.exit_codes)


@contextmanager
def _folder(launch: Launch) -> Iterator[Path]:
    """Where ranks leave their heartbeats and outcomes; one that a killed start of theirs left goes first.

    Its name begins with a hash of the logs' folder and the machine's number, so that each launcher looks
    after its own, also where several machines are one. It is locked, for containers may share the temporary
    folder and call different runs the same.
    """
    whose = os.fsencode(launch.logs.absolute()) + f":{launch.node}".encode() * (launch.nodes > 1)
    prefix = f"kitae-ranks-{hashlib.sha256(whose).hexdigest()[:12]}-"
    try:
        for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
            _remove(left)
        folder = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    except OSError as error:
        raise StorageError(f"cannot make a temporary folder: {error.strerror}; set TMPDIR") from error
    with folder as name, exclusive(Path(name) / _LOCK):
        yield Path(name)


def _remove(folder: Path) -> None:
    """Remove it if nobody works with it."""
    with suppress(OSError), exclusive(folder / _LOCK, wait=False) as held:
        if held:
            shutil.rmtree(folder, ignore_errors=True)


def _lay_out(order: Order) -> None:
    """Make every file that the ranks need, so that it is said here when one cannot be made."""
    try:
        order.launch.logs.mkdir(parents=True, exist_ok=True)
        for rank in order.launch.local_ranks:
            make_heartbeat(order.heartbeat(rank))
            order.launch.log(rank).open("a").close()
        order.write()
    except OSError as error:
        raise StorageError(f"cannot write {error.filename}: {error.strerror}") from error


def show_cursor() -> None:
    """Give the terminal its cursor back, which a display that was killed has hidden."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h")
