"""What the processes of a chip test do. Each part has its own: one that dies or hangs takes no other.

Each function gets the mesh of its ranks, the name of the backend and a folder, into which the leading rank
writes `<part>.json`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kitae.backend.base import Backend
from kitae.backend.table import select
from kitae.doctor.chip.cases import CASES, STEPS, job_of
from kitae.doctor.chip.recorded import losses_of
from kitae.parallel.layout import Box
from kitae.parallel.mesh import Mesh
from kitae.storage.files import replace_file
from kitae.train.loop import train
from kitae.train.metrics import read_records
from kitae.train.rounding import RoundingKey, keyed_bits, stochastic_round

SIZES = (1 << 12, 1 << 20, 1 << 24)
"""Bytes of the tensors whose way is timed."""
_REPEATS = 5
PARTS_OF_A_STEP = (0.1, 0.25, 0.5, 0.75)
_STEP = 2.0**-7
"""Between 1 and the next bf16 number."""
_COUNT = 1 << 16


def collectives(mesh: Mesh, backend: str, folder: str) -> None:
    """Whether each collective gives what it must, and how fast it is."""
    where, wrong, rows = select(backend), [], []
    for name, test in _COLLECTIVES.items():
        mesh.meter.observer.touch(f"the test of {name}")
        if not test(mesh, where):
            wrong.append(name)
        for size in SIZES:
            seconds = _timed(mesh, where, name, size)
            rows.append(
                {"collective": name, "bytes": size, "seconds": seconds, **_bus(name, size, seconds, mesh)}
            )
    all_wrong = sorted({name for names in mesh.control.exchange(wrong) for name in names})
    _write(mesh, folder, "collectives", {"ranks": mesh.world.size, "wrong": all_wrong, "times": rows})


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
    whole = torch.zeros(count).to(where.device)
    part, rows = whole[: count // ranks].clone(), whole.view(ranks, -1)
    taken = torch.empty_like(rows)
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


def _bus(name: str, size: int, seconds: float, mesh: Mesh) -> dict[str, float]:
    """Bus bandwidth as nccl-tests and nccom-test count it."""
    ranks = mesh.world.size
    turns = 2.0 if name == "all_reduce" else 1.0
    return {"bus_gb_per_s": turns * (ranks - 1) / ranks * size / seconds / 1e9}


def losses(mesh: Mesh, backend: str, folder: str) -> None:
    """Small trainings in fp32 and bf16: the losses of every update, and what went wrong."""
    where, found = select(backend), {}
    for name, case in CASES.items():
        for precision in case.precisions:
            mesh.meter.observer.touch(f"the training of {name} in {precision}")
            place = Path(folder) / f"{name} {precision}".replace(" ", "-")
            begin = time.perf_counter()
            try:
                train(job_of(case, place, where, precision))
                found[f"{name} {precision}"] = {"losses": losses_of(place), **_seconds(begin)}
            except Exception as error:  # the next one may work
                found[f"{name} {precision}"] = {"trouble": f"{type(error).__name__}: {error}"[:600]}
    _write(mesh, folder, "losses", found)


def rounding(mesh: Mesh, backend: str, folder: str) -> None:
    """How the device rounds fp32 to bf16 by itself, and how kitae's own keyed rounding does there."""
    where = select(backend)
    key = RoundingKey(3, 1)

    def keyed(values: torch.Tensor) -> torch.Tensor:
        shape = tuple(values.shape)
        bits = keyed_bits(key, "chip-test", shape, Box.whole(shape), values.device)
        return stochastic_round(values, bits)

    ways = {"device": lambda values: values.to(torch.bfloat16), "keyed": keyed}
    rows = [
        {"way": way, **_statistics(where, function, part)}
        for way, function in ways.items()
        for part in PARTS_OF_A_STEP
    ]
    _write(mesh, folder, "rounding", {"count": _COUNT, "rows": rows})


def _statistics(
    where: Backend, way: Callable[[torch.Tensor], torch.Tensor], part: float
) -> dict[str, float | str]:
    """Of many values at `part` of the way between two bf16 numbers."""
    values = torch.full((_COUNT // 256, 256), 1.0 + part * _STEP).to(where.device)
    try:
        rounded = way(values)
        where.boundary("rounding", outputs=[rounded])
        steps = (rounded.cpu().double() - 1.0) / _STEP
    except Exception as error:
        return {"part": part, "trouble": f"{type(error).__name__}: {error}"[:300]}
    return {"part": part, "mean": float(steps.mean()), "variance": float(steps.var(correction=0))}


def resume(mesh: Mesh, backend: str, folder: str) -> None:
    """Whether a training that goes on from its middle ends with the bits of one that went through."""
    where, case = select(backend), CASES["decoder"]
    whole, broken = Path(folder) / "whole", Path(folder) / "broken"
    half = f"{STEPS // 2} steps"
    train(job_of(case, whole, where, "bf16", every=half))
    mesh.meter.observer.touch("the training that is gone on with")
    first, last = (f"step-{step:08d}" for step in (STEPS // 2, STEPS))
    shutil.copytree(whole / "run" / "checkpoints" / first, broken / "run" / "checkpoints" / first)
    result = train(job_of(case, broken, where, "bf16", every=half))
    hashes = [_hashes(one / "run" / "checkpoints" / last) for one in (whole, broken)]
    found = {
        "resumed_from": result.resumed_from,
        "same_files": hashes[0] == hashes[1] and bool(hashes[0]),
        "files": len(hashes[0]),
        "same_losses": _second_half(whole) == _second_half(broken) != [],
    }
    _write(mesh, folder, "resume", found)


def _second_half(folder: Path) -> list[tuple[int, float]]:
    """Steps and losses of the updates that both trainings have made."""
    records = read_records(folder / "run" / "metrics.jsonl")
    return [
        (one["step"], one["loss"]) for one in records if one["kind"] == "train" and one["step"] > STEPS // 2
    ]


def _hashes(checkpoint: Path) -> dict[str, str]:
    """Of the files that hold tensors."""
    files = sorted(checkpoint.rglob("*.safetensors"))
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in files}


def _seconds(begin: float) -> dict[str, float]:
    return {"seconds": time.perf_counter() - begin}


def _write(mesh: Mesh, folder: str, part: str, found: Any) -> None:
    if mesh.leads:
        replace_file(Path(folder) / f"{part}.json", json.dumps(found).encode())
