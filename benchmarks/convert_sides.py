"""The sides of `convert.py`: each converts the same weights in its own way, in a process of its own.

    python benchmarks/convert_sides.py NAME WORK

Answers each line on standard input with the seconds of one conversion until its bytes are on the disk, and
the most memory that was held meanwhile. What it wrote is removed then.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from sides import say

from kitae.checkpoint.compare import compare
from kitae.checkpoint.convert import convert
from kitae.checkpoint.convert_options import Options
from kitae.checkpoint.hf import HfSource, read_json
from kitae.checkpoint.nxd_format import NxdFormat, rank_file
from kitae.checkpoint.nxd_layout import nxd_layouts
from kitae.checkpoint.pipe import TensorInfo
from kitae.model.config import DecoderConfig
from kitae.model.layouts import decoder_layouts
from kitae.parallel.assembly import assemble, full_box
from kitae.parallel.layout import Box

FORMAT = NxdFormat(32, kv_multiplier=4, qkv="linear")
_POOL_ELEMENTS = 33_554_467
"""A prime, so that tensors begin at many places of the pool."""
_SAMPLED_EVERY_S = 0.01


class RandomWeights:
    """bf16 values like those of weights, made on demand: always the same at the same place of a tensor."""

    def __init__(self, config: DecoderConfig) -> None:
        draw = torch.Generator().manual_seed(0)
        self._pool = (torch.randn(_POOL_ELEMENTS, generator=draw) * 0.02).bfloat16()
        pieces = [piece for layout in decoder_layouts(config, False)(1, 0) for piece in layout.pieces]
        self._infos = {piece.tensor: TensorInfo(piece.full_shape, torch.bfloat16) for piece in pieces}

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor's shape and dtype."""
        return self._infos

    def read(self, name: str, box: Box | None = None) -> torch.Tensor:
        """Whole rows of a tensor."""
        shape = self._infos[name].shape
        box = box or Box.whole(shape)
        width = torch.Size(shape[1:]).numel()
        result = torch.empty(box.shape[0] * width, dtype=torch.bfloat16)
        place, done = (zlib.crc32(name.encode()) + box.start[0] * width) % _POOL_ELEMENTS, 0
        while done < len(result):
            part = self._pool[place : place + len(result) - done]
            result[done : done + len(part)] = part
            done, place = done + len(part), 0
        # Norms scale with something near one, as in a model that works.
        return result.view(box.shape) + 1 if len(shape) == 1 else result.view(box.shape)


def copy(work: Mapping[str, Any]) -> None:
    """A plain copy of the source's files, synced."""
    subprocess.run(["cp", "-r", work["source"], work["target"]], check=True)
    sync(Path(work["target"]))


def kitae(work: Mapping[str, Any]) -> None:
    """What is measured."""
    options = {"to": "nxd", "tp": FORMAT.tp_size, "kv_multiplier": FORMAT.kv_multiplier}
    given = options if work["way"] == "there" else {"to": "hf"}
    record = convert(
        Path(work["source"]), Path(work["target"]), Options(**given, proof=work["proof"]), lambda _: None
    )
    assert record is not None


def whole(work: Mapping[str, Any]) -> None:
    """Load everything, then split it or put it together, as converters of the field do."""
    source, target = Path(work["source"]), Path(work["target"])
    config = DecoderConfig.from_hf(read_json(source / "config.json"))
    target.mkdir()
    if work["way"] == "there":
        _split(source, target, config)
    else:
        _merge(source, target, config)
    sync(target)


def _split(source: Path, target: Path, config: DecoderConfig) -> None:
    full = {name: t for file in source.glob("*.safetensors") for name, t in load_file(file).items()}
    table = nxd_layouts(config, False, FORMAT)
    for rank in range(FORMAT.tp_size):

        def part(name: str, box: Box) -> torch.Tensor:
            # Of a view, torch.save would write the whole tensor.
            return full[name][box.slices()].clone()

        state = {layout.name: assemble(layout, part, torch.bfloat16) for layout in table(rank, 0)}
        torch.save(state, target / rank_file(rank, 0))


def _merge(source: Path, target: Path, config: DecoderConfig) -> None:
    files = [source / "model" / rank_file(rank, 0) for rank in range(FORMAT.tp_size)]
    states = [torch.load(file, weights_only=True) for file in files]
    full = {name: torch.empty(info.shape, dtype=info.dtype) for name, info in _infos(config).items()}
    table = nxd_layouts(config, False, FORMAT)
    for rank, state in enumerate(states):
        for layout in table(rank, 0):
            sizes = [piece.local_shape[layout.concat_dim] for piece in layout.pieces]
            parts = state[layout.name].split(sizes, layout.concat_dim)
            for piece, values in zip(layout.pieces, parts, strict=True):
                full[piece.tensor][full_box(piece).slices()] = values
    save_file(full, target / "model.safetensors", {"format": "pt"})


def _infos(config: DecoderConfig) -> Mapping[str, TensorInfo]:
    pieces = [piece for layout in decoder_layouts(config, False)(1, 0) for piece in layout.pieces]
    return {piece.tensor: TensorInfo(piece.full_shape, torch.bfloat16) for piece in pieces}


def sync(folder: Path) -> None:
    """Wait until all in a folder is on the disk."""
    for path in (*folder.rglob("*"), folder):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def forget(folder: Path) -> None:
    """Let the system drop what it keeps of files in memory, so that each side reads them from the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def check_result(folder: Path) -> None:
    """The way back must give what was made, to the bit."""
    config = DecoderConfig.from_hf(read_json(folder / "config.json"))
    found = compare(RandomWeights(config), HfSource(folder))
    wrong = [one.name for one in found if one.verdict != "equal"]
    assert found, "nothing to compare"
    assert not wrong, wrong


class Memory:
    """The most memory of this process while it is watched: in all, and what belongs to no file."""

    def __init__(self) -> None:
        self.all_bytes = self.anonymous_bytes = 0
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Memory:
        # The system's own record of the peak begins anew.
        Path("/proc/self/clear_refs").write_text("5")
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join()
        self.all_bytes = _status("VmHWM")

    def _sample(self) -> None:
        while not self._over.wait(_SAMPLED_EVERY_S):
            self.anonymous_bytes = max(self.anonymous_bytes, _status("RssAnon"))


def _status(name: str) -> int:
    """A number of bytes in what the system says of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


SIDES: dict[str, Callable[[Mapping[str, Any]], None]] = {"copy": copy, "kitae": kitae, "whole": whole}


def _rounds(name: str, work: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    target, cpu = Path(work["target"]), time.process_time
    for number, _ in enumerate(sys.stdin):
        forget(Path(work["source"]))
        with Memory() as memory:
            begin, used = time.perf_counter(), cpu()
            SIDES[name](work)
            seconds, used = time.perf_counter() - begin, cpu() - used
        if name == "kitae" and work["way"] == "back" and number == 0:
            check_result(target)
        shutil.rmtree(target)
        yield {
            "seconds": seconds,
            "cpu_seconds": used,
            "peak_bytes": memory.all_bytes,
            "anonymous_bytes": memory.anonymous_bytes,
        }


if __name__ == "__main__":
    say({"ready": True})
    for answer in _rounds(sys.argv[1], json.loads(sys.argv[2])):
        say(answer)
