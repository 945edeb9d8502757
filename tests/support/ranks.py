"""Tests with several ranks: real processes that talk over gloo, forked from one that has imported everything.

`run_ranks(world_size, function, ...)` calls `function(mesh, ...)` in every rank and gives their results in
order. The function has to be at the top of a module. What a rank prints and where it was when the time ran
out stands in the failure, behind its number.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

PRELOADED = ["ranks_preload"]
TIMEOUT_S = 90.0


class RanksFailedError(AssertionError):
    """A rank failed, or did not end in time."""


def run_ranks(
    world_size: int,
    function: Callable[..., Any],
    *arguments: Any,
    tp_size: int = 1,
    timeout_s: float = TIMEOUT_S,
    transport: str = "gloo",
    through_host: bool = False,
) -> list[Any]:
    """Call `function(mesh, *arguments)` in `world_size` processes; their results, in order of the ranks."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    _start_server()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = (tp_size, timeout_s, transport, through_host)
        started = []
        for rank in range(world_size):
            mine, theirs = context.Pipe(duplex=False)
            target = (folder, rank, world_size, options, theirs, pickle.dumps((function, arguments)))
            process = context.Process(target=_rank, args=target, daemon=True)
            process.start()
            theirs.close()
            started.append((process, mine))
        try:
            return _collect([connection for _, connection in started], folder, timeout_s)
        finally:
            for process, _ in started:
                process.kill()
                process.join()


def _start_server() -> None:
    """Start what ranks are forked from, once, so that it finds what this process finds.

    Python 3.11 by itself does not tell it, and it passes over in silence what it cannot preload: then each
    rank imports torch on its own.
    """
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _collect(connections: list[Connection], folder: Path, timeout_s: float) -> list[Any]:
    results: dict[int, Any] = {}
    end = time.monotonic() + timeout_s
    while len(results) < len(connections):
        missing = [rank for rank in range(len(connections)) if rank not in results]
        ready = wait([connections[rank] for rank in missing], timeout=max(0.0, end - time.monotonic()))
        if not ready:
            raise RanksFailedError(f"ranks {missing} did not end within {timeout_s} s\n{_logs(folder)}")
        for connection in ready:
            rank = connections.index(connection)
            try:
                worked, value = pickle.loads(connection.recv_bytes())
            except EOFError:
                raise RanksFailedError(f"rank {rank} died\n{_logs(folder)}") from None
            if not worked:
                raise RanksFailedError(f"rank {rank} failed: {value}\n{_logs(folder)}")
            results[rank] = value
    return [results[rank] for rank in range(len(connections))]


def _logs(folder: Path) -> str:
    lines = []
    time.sleep(0.3)  # others that fail with it write theirs
    for path in sorted(folder.glob("rank-*.log")):
        lines += [f"[{path.stem}] {line}" for line in path.read_text(errors="replace").splitlines()[-60:]]
    return "\n".join(lines)


def _rank(folder: Path, rank: int, world_size: int, options: Any, answer: Connection, order: bytes) -> None:
    log = os.open(folder / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        result = (True, _call(folder, rank, world_size, options, order))
    except BaseException as error:
        traceback.print_exc()
        result = (False, f"{type(error).__name__}: {error}")
    answer.send_bytes(pickle.dumps(result))
    answer.close()
    os._exit(0)  # without the end of the interpreter, which waits for peers that may be gone


def _call(folder: Path, rank: int, world_size: int, options: Any, order: bytes) -> Any:
    import torch
    import torch.distributed as dist

    from kitae.parallel.mesh import Mesh, join_world

    tp_size, timeout_s, transport, through_host = options
    faulthandler.dump_traceback_later(timeout_s - 1)
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ["LOCAL_RANK"] = str(rank)
    function, arguments = pickle.loads(order)
    if world_size == 1:
        return function(Mesh(), *arguments)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(str(folder / "store"), world_size),
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout_s),
    )
    mesh = join_world(tp_size=tp_size, transport=transport, through_host=through_host, timeout_s=timeout_s)
    result = function(mesh, *arguments)
    dist.barrier()
    return result
