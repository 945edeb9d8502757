"""The sides of `train_encoder.py`: kitae's own loop, and the HF Trainer, on the same labelled rows."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from train_sides import BETAS, LEARNING_RATE, MAX_GRAD_NORM, WEIGHT_DECAY, Gate, Work, hf_trainer, run_kitae

BUILT = Path(__file__).resolve().parents[1] / "recipes" / "japanese" / "built"


@dataclass(frozen=True)
class EncoderWork(Work):
    """What both sides do; `packed` is the folder of labelled rows."""

    trim: bool
    """Whether the HF Trainer cuts a batch at its longest row."""

    @classmethod
    def prepare(
        cls, folder: Path, model: dict[str, Any], options: argparse.Namespace, updates: int
    ) -> EncoderWork:
        """Bring model (a recipe's section) and sentences into the folder, with kitae's own stages."""
        from kitae.checkpoint.export import export
        from kitae.stages.job import open_job
        from kitae.stages.pipeline import run_stages
        from kitae.stages.training import open_start, prepared

        path = folder / "recipe.yaml"
        path.write_text(json.dumps(recipe_of(folder, model, options, updates)))  # JSON is YAML
        job = open_job(path, report=lambda line: None)
        run_stages(job, "import")
        start, names = open_start(job), {}
        if options.dropout is not None:
            names = {"hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"}
        config = {**start.config, **dict.fromkeys(names, options.dropout)}
        export(start.source("weights"), folder / "model", config=config, dtype=torch.float32)
        return cls(
            model=str(folder / "model"),
            packed=str(prepared(job).folder / "train"),
            scratch=str(folder),
            steps=options.steps,
            updates=updates,
            micro_batch=options.batch,
            accumulation=1,
            sequence_length=options.sequence_length,
            tuned_peers=options.tuned_peers,
            trim=options.trim_peers,
        )

    def labelled_rows(self) -> Any:
        """The rows that are trained on, in order."""
        from kitae.data.cursor import Cursor
        from kitae.data.labelled_data import LabelledData

        data = LabelledData.open(Path(self.packed))
        return data.read(Cursor(len(data), 0).reads(0, self.updates * self.micro_batch))


def recipe_of(
    folder: Path, model: dict[str, Any], options: argparse.Namespace, updates: int
) -> dict[str, Any]:
    """The training of the sentiment recipe, with sizes of its own."""
    return {
        "kitae": 1,
        "name": "bench",
        "runs": str(folder / "runs"),
        "objective": "classification",
        "model": model,
        "data": {
            "train": [{"path": str(BUILT / "sentiment" / "train.jsonl")}],
            "tokenizer": {"folder": str(BUILT / "encoder")},
            "sequence_length": options.sequence_length,
            "labels": {"field": "label", "values": {"negative": 0, "positive": 1}},
        },
        "training": {
            "duration": f"{updates} steps",
            "global_batch_size": options.batch,
            "micro_batch_size": options.batch,
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


def kitae(work: EncoderWork, gate: Gate) -> None:
    """Run kitae's own loop; the gate stands where it reads the rows of an update."""
    from kitae.backend.table import select
    from kitae.checkpoint.model_folder import load_model
    from kitae.checkpoint.store import CheckpointStore
    from kitae.data.examples import Sample
    from kitae.data.labelled_data import LabelledData
    from kitae.data.labelled_rows import LabelledRows
    from kitae.recipe.load import load_recipe
    from kitae.recipe.resolve import resolve
    from kitae.train.job import Phase, TrainJob

    class GatedData(LabelledData):
        def read(self, samples: Sequence[Sample]) -> LabelledRows:
            if len(samples) == work.micro_batch:
                gate()
            return super().read(samples)

    backend = select("cpu")
    recipe = resolve(load_recipe(Path(work.scratch) / "recipe.yaml").recipe, backend=backend.name).recipe
    folder = Path(work.scratch) / "kitae"
    job = TrainJob(
        model=load_model(Path(work.model)),
        phases=(Phase(recipe, GatedData.open(Path(work.packed)), None, "bench"),),
        recipe_hash="bench",
        store=CheckpointStore(folder / "checkpoints", keep=1),
        folder=folder,
        backend=backend,
        model_config=json.loads((Path(work.model) / "config.json").read_text()),
        report=lambda line: None,
    )
    run_kitae(job, gate)


def trainer(work: EncoderWork, gate: Gate) -> None:
    """The HF Trainer; its collator cuts a batch at its longest row where `trim` is on."""
    from transformers import AutoModelForSequenceClassification, default_data_collator

    def trimmed(features: list[dict[str, Any]]) -> dict[str, Any]:
        batch = default_data_collator(features)
        longest = int(batch["attention_mask"].sum(1).max())
        return {name: one if name == "labels" else one[:, :longest] for name, one in batch.items()}

    rows = work.labelled_rows()
    seen = np.arange(rows.input_ids.shape[1]) < rows.lengths[:, None]
    columns = zip(
        rows.input_ids.tolist(),
        rows.token_type_ids.tolist(),
        seen.astype(int).tolist(),
        rows.labels.tolist(),
        strict=True,
    )
    names = ("input_ids", "token_type_ids", "attention_mask", "labels")
    model = AutoModelForSequenceClassification.from_pretrained(work.model, dtype=torch.float32)
    collator = trimmed if work.trim else default_data_collator
    features = [dict(zip(names, row, strict=True)) for row in columns]
    hf_trainer(model, features, work, gate, data_collator=collator)


SIDES: dict[str, Callable[[EncoderWork, Gate], None]] = {"kitae": kitae, "trainer": trainer}


def main() -> None:
    name, work = sys.argv[1], EncoderWork(**json.loads(sys.argv[2]))
    if work.tuned_peers:
        from kitae.backend.table import select

        select("cpu")
    SIDES[name](work, Gate(work.steps))


if __name__ == "__main__":
    main()
