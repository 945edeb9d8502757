"""The launcher of one machine of several: `python -m kitae.launch.node ATTEMPT`, started once on each.

The attempt's folder holds the order of all. This machine finds its own number in its environment, meets the
others, starts its ranks and leaves in the folder how they ended.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from signal import Signals

from kitae.errors import KitaeError
from kitae.launch.environment import apply, check_ranks, here, raise_file_limit
from kitae.launch.helper import helped
from kitae.launch.local import run_ranks
from kitae.launch.meeting import meet
from kitae.launch.node_end import NodeEnd
from kitae.launch.order import Order
from kitae.launch.outcome import outcome_of
from kitae.launch.stops import Stops

_LOOK_S = 0.2
_NUMBERS = ("SLURM_NODEID", "GROUP_RANK")
"""Variables that tell which machine this is."""


def main() -> None:
    """Start the ranks of this machine; 0 when they ended as planned."""
    order = Order.read(Path(sys.argv[1]) / "order.json")
    node = node_number(os.environ)
    raise_file_limit()
    with Stops() as stops:
        watch_for_stop(stop_file(order.folder), stops)
        end = _run(order, node, stops)
    end.write(node_file(order.folder, node))
    sys.exit(1 if end.verdict is not None or any(one.failed for one in end.ends) else 0)


def _run(order: Order, node: int, stops: Stops) -> NodeEnd:
    launch = order.launch
    try:
        meeting = meet(order.folder, launch.job, node, launch.addresses)
        check_ranks(launch.backend, launch.local_size, several=launch.nodes > 1)
        apply(launch.backend, here(launch.addresses[0], meeting.interface, precision=launch.precision))
        own = replace(launch, node=node, meeting=meeting.endpoint, interface=meeting.interface)
        with helped(own.helper and own.helper.with_settings(node=own.name)):
            return run_ranks(order.entry, order.arguments, own, stops)
    except KitaeError as error:
        return NodeEnd(launch.names[node], (), outcome_of(error))


def node_file(attempt: Path, node: int) -> Path:
    """What a machine leaves."""
    return attempt / f"node-{node}.json"


def stop_file(attempt: Path) -> Path:
    """Holds the name of the signal that all are to stop for."""
    return attempt / "stop"


def node_number(environment: Mapping[str, str]) -> int:
    """The number of this machine in its job; 0 where nothing says so."""
    return next((int(environment[name]) for name in _NUMBERS if name in environment), 0)


def watch_for_stop(path: Path, stops: Stops) -> None:
    """Take a stop from a file, too: it reaches machines from wherever the job is looked after."""

    def look() -> None:
        while stops.asked is None:
            with suppress(OSError, KeyError):
                stops.ask(Signals[path.read_text(encoding="utf-8").strip()])
            time.sleep(_LOOK_S)

    threading.Thread(target=look, daemon=True).start()


if __name__ == "__main__":
    main()
