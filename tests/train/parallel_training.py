"""Whole trainings of a tiny model on several ranks, for the tests of the parallel engine.

`trained(topology, folder, ...)` runs one through the real loop in real processes and gives what it showed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import run_ranks
from tiny_training import recipe, rows_of

from kitae.backend.table import BACKENDS, select
from kitae.checkpoint.store import CheckpointStore
from kitae.data.packed import PackedData
from kitae.errors import KitaeError
from kitae.model.config import DecoderConfig
from kitae.model.decoder import Decoder
from kitae.model.init import initialise
from kitae.parallel.mesh import Mesh
from kitae.parallel.region import region_of
from kitae.train import loop
from kitae.train.job import Phase, TrainJob
from kitae.train.metrics import read_records

ROWS = 40
CONFIG = {
    "model_type": "llama",
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}


@dataclass(frozen=True)
class Topology:
    """How a training is spread."""

    tp: int = 1
    dp: int = 1
    sequence: bool = False
    zero1: bool = False

    @property
    def ranks(self) -> int:
        return self.tp * self.dp

    def __str__(self) -> str:
        return f"tp{self.tp}-dp{self.dp}" + "-sequence" * self.sequence + "-zero1" * self.zero1

    def section(self) -> dict[str, object]:
        return {
            "tensor_parallel_size": self.tp,
            "data_parallel_size": self.dp,
            "sequence_parallel": self.sequence,
            "zero1": self.zero1,
            "bucket_bytes": 20_000,
        }


ALONE = Topology()
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
"""What the tests of the parallel engine run on; several ranks may share one GPU."""


@dataclass(frozen=True)
class Trained:
    """What a training showed."""

    losses: list[float]
    norms: list[float]
    heldout: list[float]
    samples: list[list[int]]
    """Rows of each update of this attempt, over all ranks."""
    code: int
    says: str
    """The error's text, of each rank the same."""


def trained(
    topology: Topology,
    folder: Path,
    *,
    steps: int = 20,
    micro: int = 1,
    batch: int = 8,
    model: dict[str, object] | None = None,
    sabotage: Any = None,
    timeout_s: float = 90.0,
    device: str = "cpu",
    training: dict[str, object] | None = None,
    **sections: object,
) -> Trained:
    """Train in `folder`, or go on there; every rank first calls `sabotage(mesh)`, if there is one."""
    prepare(folder)
    given = {
        "training": {
            "duration": f"{steps} steps",
            "global_batch_size": batch,
            "micro_batch_size": micro,
            **(training or {}),
        },
        "parallel": topology.section(),
        **sections,
    }
    order = (str(folder), {**CONFIG, **(model or {})}, given, sabotage, device)
    transport, through_host = BACKENDS[device].transport(topology.ranks)
    answers = run_ranks(
        topology.ranks,
        train_rank,
        *order,
        tp_size=topology.tp,
        timeout_s=timeout_s,
        transport=transport,
        through_host=through_host,
    )
    assert len({(code, says) for _, code, says in answers}) == 1, [answer[1:] for answer in answers]
    copies = [answer[0] for answer in answers[:: topology.tp]]
    records = list(read_records(folder / "run" / "metrics.jsonl"))
    updates = [record for record in records if record["kind"] == "train"]
    return Trained(
        [record["loss"] for record in updates],
        [record["grad_norm"] for record in updates],
        [record["loss"] for record in records if record["kind"] == "evaluation"],
        [sorted(chain.from_iterable(parts)) for parts in zip(*copies, strict=True)],
        *answers[0][1:],
    )


def prepare(folder: Path) -> None:
    """Make the rows, the same in each folder."""
    if not (folder / "train").exists():
        rows_of(folder / "train", ROWS)
        rows_of(folder / "heldout", 5, seed=1)


def train_rank(
    mesh: Mesh,
    folder: str,
    config: dict[str, Any],
    sections: dict[str, Any],
    sabotage: Any,
    device: str,
) -> tuple[list[list[int]], int, str]:
    """Train in one rank: rows of its updates, exit code and error."""
    seen = note_samples()
    if sabotage is not None:
        sabotage(mesh)
    job = job_of(mesh, Path(folder), config, sections, device)
    try:
        loop.train(job)
    except KitaeError as error:
        return seen, error.exit_code, str(error)
    return seen, 0, ""


def note_samples() -> list[list[int]]:
    """Let the loop note which rows this rank gets in each update."""
    seen: list[list[int]] = []
    usual = loop.global_batch

    def noted(*arguments: Any, **options: Any) -> Any:
        batch = usual(*arguments, **options)
        seen.append([sample for part in batch.micro_batches for sample in part.samples])
        return batch

    loop.global_batch = noted
    return seen


def decoder_of(
    mesh: Mesh, config: dict[str, Any], sequence_parallel: bool = False, device: str = "cpu"
) -> Decoder:
    """The tiny model with this rank's part of the starting weights."""
    decoder = Decoder(
        DecoderConfig.from_hf(config),
        tied=bool(config["tie_word_embeddings"]),
        device=device,
        region=region_of(mesh.tensor, sequence_parallel),
    )
    initialise(dict(decoder.named_parameters()), decoder.layouts, seed=0, std=0.1)
    return decoder


def job_of(
    mesh: Mesh, folder: Path, config: dict[str, Any], sections: dict[str, Any], device: str = "cpu"
) -> TrainJob:
    """The job of one rank."""
    run = folder / "run"
    backend = select(device)
    made = recipe(**sections)
    return TrainJob(
        model=decoder_of(mesh, config, made.parallel.sequence_parallel, device),
        phases=(Phase(made, PackedData.open(folder / "train"), PackedData.open(folder / "heldout"), "data"),),
        recipe_hash="tiny",
        store=CheckpointStore(run / "checkpoints", keep=3, control=mesh.control),
        folder=run,
        backend=backend,
        model_config=config,
        report=lambda line: print(line, flush=True),
        mesh=mesh,
    )


def stored(folder: Path, step: int) -> dict[tuple[str, str], torch.Tensor]:
    """Every full tensor of a checkpoint, by kind and name."""
    checkpoint = CheckpointStore(folder / "run" / "checkpoints", keep=3).open(step)
    return {
        (kind, name): checkpoint.source(kind).read(name)
        for kind in checkpoint.manifest.tensors
        for name in checkpoint.source(kind).tensors()
    }


def results_of(folder: Path) -> dict[str, Any]:
    """`results.json`."""
    return json.loads((folder / "run" / "results.json").read_text())
