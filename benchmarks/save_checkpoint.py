"""How long a save stalls training, against a copy of the state in memory and against torch.save with fsync.

    python benchmarks/save_checkpoint.py [--mb 200] [--pairs 7] [--folder DIR]

The state is fp32 weights and the two AdamW moments. Each round times the three once, in an order that changes
from round to round; printed are medians with the range, and the ratios of each round likewise. kitae's save
hashes what it writes, syncs it and replaces the save before it; torch.save writes one file, is synced, and
replaces it too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from kitae.checkpoint.pipe import TensorInfo
from kitae.checkpoint.store import CheckpointStore
from kitae.parallel.layout import Box

State = dict[str, dict[str, torch.Tensor]]
KINDS = ("weights", "exp_avg", "exp_avg_sq")
TENSORS = 40


class MemorySource:
    """Tensors in memory."""

    def __init__(self, held: Mapping[str, torch.Tensor]) -> None:
        self._held = held

    def tensors(self) -> dict[str, TensorInfo]:
        """Their shapes and dtypes."""
        return {name: TensorInfo(tuple(tensor.shape), tensor.dtype) for name, tensor in self._held.items()}

    def read(self, name: str, box: Box | None = None) -> torch.Tensor:
        """A view of one."""
        return self._held[name] if box is None else self._held[name][box.slices()]


def state_of(megabytes: int) -> State:
    rows = max(1, megabytes * 1_000_000 // (len(KINDS) * TENSORS * 1024 * 4))
    draw = torch.Generator().manual_seed(0)
    return {
        kind: {f"layer.{i}.weight": torch.randn(rows, 1024, generator=draw) for i in range(TENSORS)}
        for kind in KINDS
    }


def copy_in_memory(state: State) -> None:
    {kind: {name: tensor.clone() for name, tensor in tensors.items()} for kind, tensors in state.items()}


def torch_save(state: State, folder: Path) -> None:
    temporary = folder / "state.pt.tmp"
    with temporary.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / "state.pt")


def kitae_save(state: State, store: CheckpointStore, step: int) -> None:
    sources = {kind: MemorySource(tensors) for kind, tensors in state.items()}
    store.save(step, sources, state={"step": step}, config={}, recipe_hash="")


def seconds(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def measure(state: State, folder: Path, pairs: int) -> dict[str, list[float]]:
    """Seconds of each contender in each round; the first round warms up and is left out."""
    store = CheckpointStore(folder / "kitae", keep=1)
    times: dict[str, list[float]] = {"copy": [], "torch": [], "kitae": []}
    for step in range(pairs + 1):
        contenders: list[tuple[str, Callable[[], None]]] = [
            ("copy", lambda: copy_in_memory(state)),
            ("torch", lambda: torch_save(state, folder)),
            ("kitae", lambda step=step: kitae_save(state, store, step)),
        ]
        turn = step % len(contenders)
        for name, work in contenders[turn:] + contenders[:turn]:
            times[name].append(seconds(work))
    return {name: values[1:] for name, values in times.items()}


def spread(values: list[float]) -> str:
    return f"median {statistics.median(values):.3f}, {min(values):.3f} to {max(values):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, default=200, help="size of the state in MB")
    parser.add_argument("--pairs", type=int, default=7, help="rounds that count")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder by default")
    options = parser.parse_args()
    state = state_of(options.mb)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        times = measure(state, Path(folder), options.pairs)
    print(f"state of {options.mb} MB, {options.pairs} interleaved rounds, {torch.get_num_threads()} threads")
    for name, label in (("copy", "copy in memory"), ("torch", "torch.save + fsync"), ("kitae", "kitae save")):
        print(f"{label:22} s: {spread(times[name])}")
    for name, label in (("copy", "kitae / copy"), ("torch", "kitae / torch.save")):
        print(f"{label:22}  : {spread([k / t for k, t in zip(times['kitae'], times[name], strict=True)])}")


if __name__ == "__main__":
    main()
