"""What tests of conversions share."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import torch
from nxd_case import FIXTURE, Cut, cut_rank, fixture_weights, rank_name, write
from tiny_tokenizer import train_backend, write_tokenizer

from kitae.checkpoint.convert import convert
from kitae.checkpoint.convert_options import Options
from kitae.checkpoint.convert_record import Record

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


def die_at(count: int) -> None:
    """End this process by SIGKILL when the `count`-th tensor of a conversion is read."""
    from kitae.checkpoint.wrapped import Counting

    read, calls = Counting.read, iter(range(count))

    def counted(self: Counting, *given: Any) -> torch.Tensor:
        if next(calls, None) is None:
            signal.raise_signal(signal.SIGKILL)
        return read(self, *given)

    Counting.read = counted  # type: ignore[method-assign]


def convert_and_die(source: Path, target: Path, count: int, options: dict[str, Any]) -> None:
    """A conversion that does not come to its end."""
    die_at(count)
    converted(source, target, proof="values", **options)
