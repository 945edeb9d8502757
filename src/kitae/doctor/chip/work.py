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
from kitae.backend.stack import stack_here
from kitae.backend.table import select
from kitae.doctor.chip.cases import CASES, STEPS, job_of
from kitae.doctor.chip.exchange import exchanges
from kitae.doctor.chip.recorded import losses_of
from kitae.model.attention import attend
from kitae.model.neuron_attention import LENGTH_MULTIPLE, SOURCES
from kitae.parallel.layout import Box
from kitae.parallel.mesh import Mesh
from kitae.storage.files import replace_file
from kitae.train.loop import train
from kitae.train.metrics import read_records
from kitae.train.rounding import RoundingKey, keyed_bits, stochastic_round

PARTS_OF_A_STEP = (0.1, 0.25, 0.5, 0.75)
_STEP = 2.0**-7
"""Between 1 and the next bf16 number."""
_COUNT = 1 << 16


def collectives(mesh: Mesh, backend: str, folder: str) -> None:
    """Whether each gives what it must, and how fast it is."""
    _write(mesh, folder, "collectives", exchanges(mesh, select(backend)))


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


def attention(mesh: Mesh, backend: str, folder: str) -> None:
    """The device's own attention kernel in bf16, forward and backward, beside the plain form on the host."""
    where, source = select(backend), SOURCES[stack_here(backend)]
    kernel = source if isinstance(source, str) else source()
    if isinstance(kernel, str):
        _write(mesh, folder, "attention", {"missing": kernel})
        return
    draw = torch.Generator().manual_seed(2)
    given = [torch.randn(1, LENGTH_MULTIPLE, heads, 64, generator=draw).bfloat16() for heads in (4, 2, 2)]
    there = [one.to(where.device).requires_grad_() for one in given]
    here = [one.float().requires_grad_() for one in given]
    found = _with_gradients(kernel.run, there)
    where.boundary("attention", outputs=found)
    expected = _with_gradients(lambda q, k, v: attend(q, k, v, None, None), here)
    names = ("output", "gradient of queries", "gradient of keys", "gradient of values")
    apart = {
        name: float((one.cpu().float() - other).abs().max() / other.abs().max())
        for name, one, other in zip(names, found, expected, strict=True)
    }
    _write(mesh, folder, "attention", {"length": LENGTH_MULTIPLE, "differences": apart})


def _with_gradients(way: Callable[..., torch.Tensor], given: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """What attention gives, and the gradients of the mean of its squares."""
    mixed = way(*given)
    return (mixed.detach(), *torch.autograd.grad(mixed.float().square().mean(), given))


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
