"""Collectives of a chip test: whether they give what they must, and how fast they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from kitae.backend.base import Backend
from kitae.parallel.mesh import Mesh

SIZES = (1 << 12, 1 << 20, 1 << 24)
"""Bytes of the tensors whose way is timed."""
_REPEATS = 5


def exchanges(mesh: Mesh, where: Backend) -> dict[str, Any]:
    """All of them, of each size; what was wrong on any rank, and the slowest rank's times."""
    wrong, rows = [], []
    for name, test in _COLLECTIVES.items():
        mesh.meter.observer.touch(f"the test of {name}")
        if not test(mesh, where):
            wrong.append(name)
        for size in SIZES:
            seconds = _timed(mesh, where, name, size)
            of_size = {"collective": name, "bytes": size, "seconds": seconds}
            rows.append({**of_size, "bus_gb_per_s": bus_gb_per_s(name, size, seconds, mesh.world.size)})
    all_wrong = sorted({name for names in mesh.control.exchange(wrong) for name in names})
    return {"ranks": mesh.world.size, "wrong": all_wrong, "times": rows}


def _sum(mesh: Mesh, where: Backend) -> bool:
    given = torch.full((1 << 10,), float(mesh.rank + 1)).to(where.device)
    return _same(mesh.world.all_reduce(given), where, torch.full((1 << 10,), _total(mesh)))


def _gather(mesh: Mesh, where: Backend) -> bool:
    given = torch.full((8,), float(mesh.rank)).to(where.device)
    ranks = torch.arange(mesh.world.size).float().repeat_interleave(8)
    return _same(mesh.world.all_gather(given), where, ranks)


def _scatter(mesh: Mesh, where: Backend) -> bool:
    size = mesh.world.size
    given = (torch.arange(8 * size).float() * (mesh.rank + 1)).to(where.device)
    part = torch.arange(8 * mesh.rank, 8 * mesh.rank + 8).float() * _total(mesh)
    return _same(mesh.world.reduce_scatter(given), where, part)


def _exchange(mesh: Mesh, where: Backend) -> bool:
    size = mesh.world.size
    given = (100.0 * mesh.rank + torch.arange(size).float())[:, None].repeat(1, 8).to(where.device)
    taken = torch.empty_like(given)
    mesh.world.start_all_to_all(taken, given).wait()
    return _same(taken, where, (100.0 * torch.arange(size).float() + mesh.rank)[:, None].repeat(1, 8))


_COLLECTIVES: dict[str, Callable[[Mesh, Backend], bool]] = {
    "all_reduce": _sum,
    "all_gather": _gather,
    "reduce_scatter": _scatter,
    "all_to_all": _exchange,
}


def _total(mesh: Mesh) -> float:
    return mesh.world.size * (mesh.world.size + 1) / 2


def _same(found: torch.Tensor, where: Backend, expected: torch.Tensor) -> bool:
    where.boundary("collectives", outputs=[found])
    return torch.equal(found.cpu(), expected)


def _timed(mesh: Mesh, where: Backend, name: str, size: int) -> float:
    """Best seconds of a collective of `size` bytes in all, the slowest rank's."""
    ranks = mesh.world.size
    count = size // 4 // ranks * ranks
    # Each from the host: made on the device, they would be part of a program, and take one more to compile.
    shapes = ((count,), (count // ranks,), (ranks, count // ranks), (ranks, count // ranks))
    whole, part, rows, taken = (torch.zeros(shape).to(where.device) for shape in shapes)
    calls: dict[str, Callable[[], torch.Tensor]] = {
        "all_reduce": lambda: mesh.world.all_reduce(whole),
        "all_gather": lambda: mesh.world.all_gather(part),
        "reduce_scatter": lambda: mesh.world.reduce_scatter(whole),
        "all_to_all": lambda: _exchanged(mesh, taken, rows),
    }
    times = []
    for _ in range(_REPEATS + 1):
        mesh.control.barrier()
        begin = time.perf_counter()
        found = calls[name]()
        where.boundary("collectives", outputs=[found])
        where.synchronize()
        times.append(time.perf_counter() - begin)
    best: float = max(mesh.control.exchange(min(times[1:])))
    return best


def _exchanged(mesh: Mesh, taken: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    mesh.world.start_all_to_all(taken, given).wait()
    return taken


def bus_gb_per_s(name: str, size: int, seconds: float, ranks: int) -> float:
    """Bus bandwidth as nccl-tests and nccom-test count it."""
    turns = 2.0 if name == "all_reduce" else 1.0
    return turns * (ranks - 1) / ranks * size / seconds / 1e9
