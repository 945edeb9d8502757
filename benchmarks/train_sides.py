"""The three sides of `train_decoder.py`, each made to wait for a line before the updates of a round."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sides import say

if TYPE_CHECKING:
    from kitae.parallel.mesh import Mesh
    from kitae.train.job import TrainJob

LEARNING_RATE, BETAS, WEIGHT_DECAY, MAX_GRAD_NORM = 1e-4, (0.9, 0.95), 0.1, 1.0
TEXT = Path(__file__).resolve().parents[1] / "recipes" / "demo" / "text" / "train"


@dataclass(frozen=True)
class Work:
    """What all sides do."""

    model: str
    """Folder of the model in fp32."""
    packed: str
    """Folder of the packed rows."""
    scratch: str
    steps: int
    """Updates in a round."""
    updates: int
    micro_batch: int
    accumulation: int
    sequence_length: int
    tuned_peers: bool

    def to_json(self) -> str:
        """For another process."""
        return json.dumps(asdict(self))

    @classmethod
    def prepare(cls, folder: Path, model: dict[str, Any], options: argparse.Namespace, updates: int) -> Work:
        """Bring model (a recipe's section) and text into the folder, with kitae's own stages."""
        from kitae.checkpoint.export import export
        from kitae.stages.job import open_job
        from kitae.stages.pipeline import run_stages
        from kitae.stages.training import open_start, prepared

        tokenizer = {"named": "smollm2-135m"}
        recipe = {
            "kitae": 1,
            "name": "bench",
            "runs": str(folder / "runs"),
            "model": model,
            "data": {
                "train": [{"path": str(TEXT)}],
                "tokenizer": tokenizer,
                "sequence_length": options.sequence_length,
                "document_mask": False,
            },
            "training": {
                "duration": f"{updates} steps",
                "global_batch_size": options.micro_batch * options.accumulation,
                "micro_batch_size": options.micro_batch,
                "precision": "fp32",
            },
            "optimizer": {
                "learning_rate": LEARNING_RATE,
                "betas": list(BETAS),
                "weight_decay": WEIGHT_DECAY,
                "max_grad_norm": MAX_GRAD_NORM,
            },
            "schedule": {"kind": "constant"},
        }
        path = folder / "recipe.yaml"
        path.write_text(json.dumps(recipe))  # JSON is YAML
        job = open_job(path, report=lambda line: None)
        run_stages(job, "import")
        start = open_start(job)
        export(start.source("weights"), folder / "model", config=start.config, dtype=torch.float32)
        return cls(
            model=str(folder / "model"),
            packed=str(prepared(job).folder / "train"),
            scratch=str(folder),
            steps=options.steps,
            updates=updates,
            micro_batch=options.micro_batch,
            accumulation=options.accumulation,
            sequence_length=options.sequence_length,
            tuned_peers=options.tuned_peers,
        )

    def rows(self) -> list[list[int]]:
        """Token ids of every row that is trained on, in order."""
        from kitae.data.cursor import Cursor
        from kitae.data.packed import PackedData

        packed = PackedData.open(Path(self.packed))
        samples = Cursor(len(packed), 0).samples(0, self.updates * self.micro_batch * self.accumulation)
        return packed.rows(samples).input_ids.tolist()


class Gate:
    """Called when an update begins: waits for the round's line, and answers when the round is done."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._begun = 0
        self._start = 0.0
        self._cpu_start = 0.0
        self.losses: list[float] = []
        self.notes: dict[str, Any] = {}
        """Goes into the answers."""

    def __call__(self) -> None:
        """The next update begins."""
        if self._begun % self._steps == 0:
            if self._begun:
                self._answer()
            if not sys.stdin.readline():
                sys.exit()
            self._start, self._cpu_start = time.perf_counter(), time.process_time()
        self._begun += 1

    def _answer(self) -> None:
        times = {
            "seconds": time.perf_counter() - self._start,
            "cpu_seconds": time.process_time() - self._cpu_start,
        }
        loss = float(np.mean(self.losses[-self._steps :]))
        say({**times, "peak_bytes": peak_bytes(), "loss": loss, **self.notes})


def peak_bytes() -> int:
    """Most memory that this process has held."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def kitae(work: Work, gate: Gate) -> None:
    """Run kitae's own loop; the gate stands where it reads the rows of an update."""
    from kitae.parallel.mesh import Mesh

    run_kitae(kitae_job(work, gate, Mesh()), gate)


def run_kitae(job: TrainJob, gate: Gate) -> None:
    """Run kitae's own loop, whose losses go to the gate."""
    from kitae.train.loop import train
    from kitae.train.step import Stepper, Update

    update = Stepper.update

    def noted(self: Stepper, *arguments: Any, **options: Any) -> Update:
        done = update(self, *arguments, **options)
        gate.losses.append(done.loss)
        return done

    Stepper.update = noted  # type: ignore[method-assign]
    say({"ready": True})
    train(job)


def kitae_job(work: Work, gate: Callable[[], None], mesh: Mesh, **parallel: Any) -> TrainJob:
    """A training of kitae in one process, or one rank's part of it with those `parallel` settings."""
    from kitae.backend.table import select
    from kitae.checkpoint.model_folder import load_decoder
    from kitae.checkpoint.store import CheckpointStore
    from kitae.data.packed import PackedData
    from kitae.data.rows import Rows
    from kitae.parallel.region import region_of
    from kitae.recipe.load import load_recipe
    from kitae.recipe.parallel import ParallelConfig
    from kitae.recipe.resolve import resolve
    from kitae.train.job import Phase, TrainJob

    class GatedData(PackedData):
        def rows(self, indices: Sequence[int]) -> Rows:
            gate()
            return super().rows(indices)

    backend = select("cpu")
    recipe = load_recipe(Path(work.scratch) / "recipe.yaml").recipe
    recipe = recipe.model_copy(update={"parallel": ParallelConfig(**parallel)})
    recipe = resolve(recipe, backend=backend.name).recipe
    folder = Path(work.scratch) / sys.argv[1]
    return TrainJob(
        model=load_decoder(
            Path(work.model), region=region_of(mesh.tensor, recipe.parallel.sequence_parallel)
        ),
        phases=(Phase(recipe, GatedData.open(Path(work.packed)), None, "bench"),),
        recipe_hash="bench",
        store=CheckpointStore(folder / "checkpoints", keep=1, control=mesh.control),
        folder=folder,
        backend=backend,
        model_config=json.loads((Path(work.model) / "config.json").read_text()),
        report=lambda line: None,
        mesh=mesh,
    )


def trainer(work: Work, gate: Gate) -> None:
    """The HF Trainer on a causal language model."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(work.model, dtype=torch.float32)
    hf_trainer(model, [{"input_ids": row, "labels": row} for row in work.rows()], work, gate)


def hf_trainer(model: Any, rows: list[dict[str, Any]], work: Work, gate: Gate, **more: Any) -> None:
    """Run the HF Trainer over the rows in order, with a callback as gate; `more` are arguments of its own."""
    from torch.utils.data import SequentialSampler
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Waits(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            gate()

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any) -> None:
            if "loss" in logs:
                gate.losses.append(float(logs["loss"]))

    class InOrder(Trainer):
        def _get_train_sampler(self, *args: Any) -> SequentialSampler:
            return SequentialSampler(self.train_dataset)

    arguments = TrainingArguments(
        output_dir=str(Path(work.scratch) / "trainer"),
        per_device_train_batch_size=work.micro_batch,
        gradient_accumulation_steps=work.accumulation,
        learning_rate=LEARNING_RATE,
        adam_beta1=BETAS[0],
        adam_beta2=BETAS[1],
        weight_decay=WEIGHT_DECAY,
        max_grad_norm=MAX_GRAD_NORM,
        lr_scheduler_type="constant",
        max_steps=work.updates,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    side = InOrder(model=model, args=arguments, train_dataset=rows, callbacks=[Waits()], **more)
    say({"ready": True})
    side.train()


def bare(work: Work, gate: Gate) -> None:
    """The shortest loop that does the same."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(work.model, dtype=torch.float32).train()
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=BETAS, fused=True)
    rows = torch.tensor(work.rows()).view(work.updates, work.accumulation, work.micro_batch, -1)
    say({"ready": True})
    for update in rows:
        gate()
        total = 0.0
        for ids in update:
            loss = model(input_ids=ids, labels=ids).loss / work.accumulation
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        gate.losses.append(total)


SIDES: dict[str, Callable[[Work, Gate], None]] = {"kitae": kitae, "trainer": trainer, "bare": bare}


def main() -> None:
    name, work = sys.argv[1], Work(**json.loads(sys.argv[2]))
    if work.tuned_peers:
        from kitae.backend.table import select

        select("cpu")
    SIDES[name](work, Gate(work.steps))


if __name__ == "__main__":
    main()
