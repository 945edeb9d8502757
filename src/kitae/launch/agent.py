"""torch's elastic agent, in a thread: it starts the ranks, and ends them all when one fails.

In the main thread it would take the signal handlers over, and give the ranks 30 s to save.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kitae.launch.order import Launch, Order
from kitae.launch.stops import HELD

_ADDRESS = "127.0.0.1"
_POLL_S = 0.1
MEETING_S = 300
"""How long machines wait for each other at the beginning."""


class Agent(threading.Thread):
    """Runs the ranks of an order; done when none is left."""

    def __init__(self, order: Order) -> None:
        super().__init__(name="elastic agent", daemon=True)
        self._order = order
        self.exit_codes: dict[int, int] = {}
        """Of the ranks that ended with another code than 0; minus the signal's number for a signal."""
        self.error: BaseException | None = None
        """What kept the ranks from being started."""

    def run(self) -> None:
        """Start the ranks and wait for them."""
        # Children inherit this: a stop signal that comes before a rank is ready for it stays pending.
        signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

        try:
            with _silent():
                self._launch()
        except ChildFailedError as failed:
            self.exit_codes = {rank: failure.exitcode for rank, failure in failed.failures.items()}
        except BaseException as error:
            self.error = error

    def _launch(self) -> None:
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch

        launch = self._order.launch
        config = LaunchConfig(
            min_nodes=launch.nodes,
            max_nodes=launch.nodes,
            nproc_per_node=launch.local_size,
            **_meeting(launch),
            logs_specs=DefaultLogsSpecs(log_dir=str(self._order.folder)),
            max_restarts=0,
            monitor_interval=_POLL_S,
        )
        elastic_launch(config, sys.executable)("-c", rank_code(sys.path), str(self._order.path))


def _meeting(launch: Launch) -> dict[str, Any]:
    """How the agents of all machines find each other, and then their ranks."""
    if launch.nodes == 1:
        # The system chooses a port while it opens it; the ranks then meet at this very store.
        endpoint = {"rdzv_endpoint": f"{_ADDRESS}:0", "local_addr": _ADDRESS}
        return {"run_id": uuid.uuid4().hex, "rdzv_backend": "c10d", **endpoint}
    return {
        "run_id": str(launch.attempt),
        "rdzv_backend": "static",
        "rdzv_endpoint": launch.meeting,
        "rdzv_configs": {"rank": launch.node, "timeout": MEETING_S},
    }


def rank_code(places: Sequence[str]) -> str:
    """Python code that a rank begins with; it finds modules in `places` alone.

    `python -m` would look in the current folder first, where a file of the user's may be called random.py.
    """
    return f"import sys; sys.path[:] = {list(places)}; from kitae.launch.worker import main; main()"


@contextmanager
def _silent() -> Iterator[None]:
    """Keep the agent's log lines from the terminal: kitae says itself what happened."""
    loggers = [logging.getLogger(f"torch.distributed.{name}") for name in ("elastic", "launcher")]
    usual, nowhere = [logger.propagate for logger in loggers], logging.NullHandler()
    for logger in loggers:
        logger.propagate = False
        logger.addHandler(nowhere)
    try:
        yield
    finally:
        for logger, propagate in zip(loggers, usual, strict=True):
            logger.removeHandler(nowhere)
            logger.propagate = propagate
