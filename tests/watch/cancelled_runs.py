"""Processes that work in a run's folder as kitae does, and are ended from outside: `HOW FOLDER`."""

from __future__ import annotations

import signal
import socket
import sys
import time
from pathlib import Path

from kitae.errors import StoppedError
from kitae.launch.nodes import launch_nodes
from kitae.launch.order import Launch
from kitae.stages.run_folder import RunFolder

STARTER = (sys.executable, str(Path(__file__).parents[1] / "launch/start_everywhere.py"), "2")


def wait(run: Path) -> None:
    """A stage without a training."""
    (run / "works").touch()
    while True:
        time.sleep(0.05)


def deaf(run: Path) -> None:
    """One that hears neither SIGTERM nor Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    wait(run)


def nodes(run: Path) -> None:
    """A training on two machines that see the folder."""
    launch = Launch(
        2,
        1,
        "cpu",
        60.0,
        run / "logs",
        attempt=run / "attempts/0001",
        names=("left", "right"),
        addresses=("127.0.0.1", "127.0.0.2"),
    )
    launch_nodes("rank_works:train", {"folder": str(run)}, launch, STARTER)


def main() -> int:
    how, run = sys.argv[1], Path(sys.argv[2])
    if how == "nodes":
        socket.gethostname = lambda: "first-node"  # as if this were another machine
    try:
        with RunFolder(run).attempt():
            {"wait": wait, "deaf": deaf, "nodes": nodes}[how](run)
    except StoppedError as stop:
        return stop.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
