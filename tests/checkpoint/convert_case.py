"""What tests of conversions share."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from nxd_case import FIXTURE, Cut, cut_rank, fixture_weights, rank_name, write
from tiny_tokenizer import train_backend, write_tokenizer

from kitae.checkpoint import convert as convert_module
from kitae.checkpoint import journal, stream
from kitae.checkpoint.convert import convert
from kitae.checkpoint.convert_options import Options
from kitae.checkpoint.convert_record import Record
from kitae.checkpoint.journal import Journal

HF = FIXTURE / "hf"
STEP = 7


def converted(source: Path, target: Path, **options: Any) -> tuple[Record | None, list[str]]:
    """Convert; the record and what was said."""
    said: list[str] = []
    return convert(source, target, Options(**options), said.append), said


def quick(source: Path, target: Path, **options: Any) -> Path:
    """Convert without the proof of logits; the target."""
    converted(source, target, **{"proof": "values", **options})
    return target


def with_tokenizer(folder: Path) -> Path:
    """Add a tokenizer to a model folder."""
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<b>", "eos_token": "<e>"}
    write_tokenizer(folder, train_backend().to_str(), settings)
    return folder


def left_in(folder: Path) -> list[str]:
    """Names of all that lies in a folder, hidden ones too."""
    return sorted(path.name for path in folder.iterdir())


def training(folder: Path, cut: Cut, *, masters: bool = False) -> dict[str, dict[str, torch.Tensor]]:
    """An NxD training checkpoint of the fixture's Llama, without ZeRO; its state in full tensors by kind."""
    full = fixture_weights()
    states = {
        "exp_avg": {n: torch.randn(t.shape) * 1e-3 for n, t in full.items()},
        "exp_avg_sq": {n: torch.rand(t.shape) * 1e-6 for n, t in full.items()},
    }
    if masters:
        # Below the least bit of bf16, so that they round back.
        states["weights"] = {n: t.float() * (1 + 2**-12) for n, t in full.items()}
    write(folder, cut, full)
    (folder / "optim").mkdir()
    for tp in range(cut.tp):
        local = {kind: cut_rank(cut, state, tp) for kind, state in states.items()}
        plain = [name for name in local["exp_avg"] if "norm" in name]
        names = [name for name in local["exp_avg"] if name not in plain] + plain
        decayed = len(names) - len(plain)
        value: dict[str, Any] = {
            "state": {},
            "param_groups": [
                {"weight_decay": 0.01, "params": list(range(decayed))},
                {"weight_decay": 0.0, "params": list(range(decayed, len(names)))},
            ],
            "base_state": {
                i: {"step": STEP, **{kind: local[kind][name] for kind in ("exp_avg", "exp_avg_sq")}}
                for i, name in enumerate(names)
            },
            "shape_info": {i: list(local["exp_avg"][name].shape) for i, name in enumerate(names)},
        }
        if masters:
            value["sharded_master_weights"] = {i: local["weights"][name] for i, name in enumerate(names)}
        torch.save(value, folder / "optim" / rank_name(tp))
    return states


def settle_each_tensor() -> None:
    """Let the journal of this process have a line for each tensor, before the next one is read."""
    wrote = Journal.wrote

    def wrote_and_settled(self: Journal, *given: Any) -> None:
        wrote(self, *given)
        self._settle()
        self._settled.result()

    Journal.wrote = wrote_and_settled  # type: ignore[method-assign]


def count_reads(count: int, then: Callable[[], None]) -> None:
    """Do `then` when a conversion in this process reads its `count`-th tensor, counted from 0."""
    read, calls = stream._read, iter(range(count))

    def counted(*given: Any) -> torch.Tensor:
        if next(calls, None) is None:
            then()
        return read(*given)

    stream._read = counted


def die() -> None:
    """End this process as kill -9 does."""
    signal.raise_signal(signal.SIGKILL)


def convert_and_die(source: Path, target: Path, count: int, options: dict[str, Any]) -> None:
    """A conversion that is killed at its `count`-th tensor, with all before it on the disk."""
    settle_each_tensor()
    count_reads(count, die)
    converted(source, target, **{"proof": "values", **options})


def convert_and_die_in(where: str, source: Path, target: Path, options: dict[str, Any]) -> None:
    """A conversion that is killed when it calls a function of its module."""
    settle_each_tensor()
    setattr(convert_module, where, lambda *given, **named: die())
    converted(source, target, **{"proof": "values", **options})


def convert_and_die_at(call: int, source: Path, target: Path, options: dict[str, Any]) -> None:
    """A conversion that is killed right before the call of that number that orders something on the disk."""
    calls = iter(range(call))

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*given: Any, **named: Any) -> Any:
            if next(calls, None) is None:
                die()
            return original(*given, **named)

        return wrapper

    for owner, name in ((os, "fsync"), (Path, "rename"), (Path, "replace"), (shutil, "rmtree")):
        setattr(owner, name, counted(getattr(owner, name)))
    journal.BATCH_BYTES = 1 << 14
    converted(source, target, **{"proof": "values", **options})
    os._exit(0)
