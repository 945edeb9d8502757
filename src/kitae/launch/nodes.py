"""Ranks on several machines that see one file system: started by a program that starts one task on each.

Such a program is srun, with its options; it is the *starter*. Everything else goes through files in the
folder of the attempt: the order, where to meet, a stop, how each rank and each machine ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kitae.errors import StorageError, TrainingError
from kitae.launch.local import show_cursor
from kitae.launch.node import node_file, stop_file
from kitae.launch.node_end import NodeEnd, result_of_nodes
from kitae.launch.order import Launch, Order
from kitae.launch.stops import Stops
from kitae.storage.files import replace_file

LOOK_S = 0.2
ENDING_S = 10.0
"""How long the starter may take to end by itself after it was told to end everything."""


def launch_nodes(entry: str, arguments: Mapping[str, Any], launch: Launch, starter: Sequence[str]) -> None:
    """Call `entry` in every rank of all machines of `launch`, and wait: as `launch_ranks` does on one.

    `starter` are the words of a command that starts what follows them once on each machine. Raises what
    `launch_ranks` raises, `NodeLostError` for a machine that is gone, and TrainingError where nothing was
    started.
    """
    assert launch.attempt is not None, "several machines need a folder of their own"
    order = Order(launch, entry, arguments, os.getpid(), launch.attempt)
    _lay_out(order)
    command = [*starter, sys.executable, "-m", "kitae.launch.node", str(launch.attempt)]
    with Stops() as stops:
        code = _run(command, launch.attempt, stops)
        ends = [NodeEnd.read(node_file(launch.attempt, node)) for node in range(launch.nodes)]
        result = _result(ends, launch, stops, command[0], code)
    if result is not None:
        show_cursor()
        raise result


def _lay_out(order: Order) -> None:
    """Make the files that the launchers need; what an earlier use of the folder left goes."""
    folder = order.folder
    try:
        order.launch.logs.mkdir(parents=True, exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        for left in (*folder.glob("node-*.json"), *folder.glob("rank-*.json"), stop_file(folder)):
            left.unlink(missing_ok=True)
        (folder / "meeting.json").unlink(missing_ok=True)
        order.write()
    except OSError as error:
        raise StorageError(f"cannot write {error.filename}: {error.strerror}") from error


def _run(command: Sequence[str], attempt: Path, stops: Stops) -> int:
    """Wait for the starter, and pass a stop on; its exit code."""
    # In a session of its own: Ctrl-C is passed on as a stop, and must not reach the starter as well.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    told, end_at = False, None
    try:
        while process.poll() is None:
            time.sleep(LOOK_S)
            if stops.asked is not None and not told:
                told = True
                replace_file(stop_file(attempt), stops.asked.name.encode())
            if stops.at_once and end_at is None:
                end_at = time.monotonic() + ENDING_S
                process.send_signal(signal.SIGTERM)
            if end_at is not None and time.monotonic() > end_at:
                process.kill()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return process.returncode


def _result(
    ends: Sequence[NodeEnd | None], launch: Launch, stops: Stops, program: str, code: int
) -> BaseException | None:
    if stops.at_once:
        return KeyboardInterrupt()
    if not any(ends):
        return TrainingError(
            f"no node has begun: {Path(program).name} ended with code {code}; its own words stand above"
        )
    return result_of_nodes(ends, launch, stops.asked)
