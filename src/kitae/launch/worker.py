"""The entry of a rank, started by the elastic agent with the path of its order.

The order of what happens here matters: a rank must end with its parent from its first moment on, and a stop
signal that comes while torch is still being imported must not be lost.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from kitae.launch.heartbeat import Heartbeat
from kitae.launch.order import Order
from kitae.launch.orphans import die_with
from kitae.launch.outcome import Outcome, outcome_of
from kitae.launch.stops import HELD

if TYPE_CHECKING:
    from kitae.parallel.mesh import Mesh

_LOOPBACK = "lo"
TRANSPORT_TIMEOUT_S = 24 * 3600.0
"""When a collective gives up by itself. Never before the watchdog, which knows whether other ranks move."""


def main() -> None:
    """Do the work of one rank; does not return.

    The process leaves without the interpreter's own end, which would wait for threads of a transport whose
    peers may be gone.
    """
    _fill_standard_streams()
    order, rank = Order.read(Path(sys.argv[1])), int(os.environ["RANK"])
    _take_stops_later()
    die_with(order.parent)
    heartbeat = Heartbeat(order.heartbeat(rank))
    log = _open_log(order, rank)
    faulthandler.enable(log)
    faulthandler.register(signal.SIGUSR2, log)
    heartbeat.ready()
    outcome = _work(order, heartbeat, log)
    with suppress(OSError):  # a full disk: the exit code has to say it
        outcome.write(order.outcome(rank))
    for stream in (*_streams(), log):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(outcome.exit_code)


def _fill_standard_streams() -> None:
    """Keep 0, 1 and 2 from becoming the numbers of other files, where they were closed before the start."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)


def _take_stops_later() -> None:
    """Keep stop signals pending until the training takes them, and let later ones pass by.

    They are blocked already, since before this process began.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    for one in HELD:
        signal.signal(one, lambda number, frame: None)


def _open_log(order: Order, rank: int) -> TextIO:
    """Open the rank's log at its end. Ranks that do not speak for all write nowhere else."""
    log = order.launch.log(rank).open("a", buffering=1, encoding="utf-8", errors="backslashreplace")
    if rank > 0:
        begun = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        log.write(
            f"---- {begun} {order.launch.title}: rank {rank} of {order.launch.world_size} "
            f"({order.launch.place(rank)}), process {os.getpid()}\n"
        )
        for stream in _streams():
            os.dup2(log.fileno(), stream.fileno())
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    return log


def _work(order: Order, heartbeat: Heartbeat, log: TextIO) -> Outcome:
    """Join the others and call the entry; every way that can end."""
    try:
        with _aside(log):
            mesh = _join(order, heartbeat)
        heartbeat.touch("the beginning of its work")
        _entry(order.entry)(mesh=mesh, **order.arguments)
        heartbeat.touch("the end of its work")
        mesh.control.barrier()
    except BaseException as error:
        outcome = outcome_of(error)
        if outcome.kind == "bug":
            traceback.print_exc(file=log)
        else:
            log.write(f"{outcome.error or 'interrupt'}: {outcome.message}\n")
        return outcome
    return outcome_of(None)


def _join(order: Order, heartbeat: Heartbeat) -> Mesh:
    """Meet the other ranks, each at its own device."""
    launch = order.launch
    heartbeat.touch("importing torch")
    os.environ.setdefault("OMP_NUM_THREADS", str(threads_of_rank(launch.local_size)))
    if launch.nodes > 1:
        os.environ["KITAE_NODE"] = launch.name
    import torch.distributed as dist

    from kitae.backend.table import select
    from kitae.parallel.mesh import join_world

    heartbeat.touch("joining the others")
    _talk_over(launch.interface or _LOOPBACK)
    backend = select(launch.backend)
    transport, through_host = backend.transport(launch.local_size)
    dist.init_process_group(backend.world(launch.world_size), timeout=timedelta(seconds=TRANSPORT_TIMEOUT_S))
    backend.joined()
    mesh = join_world(
        tp_size=launch.tp_size,
        transport=transport,
        through_host=through_host,
        timeout_s=TRANSPORT_TIMEOUT_S,
    )
    mesh.meter.observer = heartbeat
    return mesh


def threads_of_rank(local_ranks: int) -> int:
    """An equal share of the cores that this process may use, at least one thread."""
    import psutil

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cores = min(usable, psutil.cpu_count(logical=False) or usable)
    return max(1, cores // local_ranks)


def _talk_over(interface: str) -> None:
    """Name the interface, so that gloo need not look the host's name up, which fails in some containers."""
    import psutil

    if interface in psutil.net_if_addrs():
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)


def _entry(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


@contextmanager
def _aside(log: TextIO) -> Iterator[None]:
    """Let what libraries print while they connect go to the log, for the rank that has the terminal, too."""
    kept = [(stream, os.dup(stream.fileno())) for stream in _streams()]
    try:
        for stream, _ in kept:
            stream.flush()
            os.dup2(log.fileno(), stream.fileno())
        yield
    finally:
        for stream, usual in kept:
            stream.flush()
            os.dup2(usual, stream.fileno())
            os.close(usual)


def _streams() -> list[TextIOWrapper]:
    """Standard output and error; less those that were closed before the start."""
    return [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, TextIOWrapper)]
