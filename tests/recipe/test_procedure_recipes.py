"""The nine full-size recipes hold the values of the procedures that they replace; their clusters are right.

The values are written out here, as the procedures state them; nothing is read from where they came from.
"""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from kitae.cluster.check import check
from kitae.cluster.load import load_cluster
from kitae.recipe.load import load_recipe
from kitae.recipe.resolve import resolve
from kitae.recipe.schema import Recipe, global_batch_size, phase_recipes

FOLDER = Path(__file__).resolve().parents[2] / "recipes"
BACKENDS = {"trn1": "xla", "trn2": "neuron", "cuda": "cuda"}
KINDS = tuple(BACKENDS)

PROCEDURE_A: dict[str, Any] = {
    "seed": 12349,
    "model": "bert-large",
    "precision": "bf16-sr",
    "optimizer": ("adamw", (0.9, 0.999), 1e-6, 0.01, 1.0),
    # Row length, predictions in a row, rows an update, learning rate, warm-up and updates of each phase.
    "phases": [(128, 20, 16384, 4e-4, 2000, 28125), (512, 80, 32768, 2.8e-4, 781, 1563)],
}
PROCEDURE_B: dict[str, Any] = {
    "seed": 12349,
    "model": "meta-llama/Llama-3.1-8B",
    "text": ("gboleda/wikicorpus", "raw_en"),
    "optimizer": ("adamw", (0.9, 0.999), 1e-6, 0.01, 1.0),
    "length": 8192,
    "rows": 1024,
    "learning_rate": 1.5e-4,
    "schedule": ("linear", "100 steps", 0.0),
    "updates": "10000 steps",
}
PROCEDURE_C: dict[str, Any] = {
    "model": "cl-tohoku/bert-base-japanese-whole-word-masking",
    "stars": {"1": 0, "2": 0, "4": 1, "5": 1},
    "texts": (4000, 256),
    "length": 128,
    "learning_rate": 5e-5,
    "epochs": "10 epochs",
    "rows": 16,
    "updates": 2500,
}
TOPOLOGY = {
    # Nodes, processes on each, tensor parallel, data parallel, rows a process takes at a time in each phase.
    "bert-large-pretrain-trn1": (16, 32, 1, 512, [16, 2]),
    "bert-large-pretrain-trn2": (8, 64, 1, 512, [16, 2]),
    "bert-large-pretrain-cuda": (4, 8, 1, 32, [64, 16]),
    "llama3.1-8b-cpt-trn1": (4, 32, 32, 4, [1]),
    "llama3.1-8b-cpt-trn2": (2, 64, 8, 16, [1]),
    "llama3.1-8b-cpt-cuda": (4, 8, 4, 8, [1]),
}
NAMES = (*TOPOLOGY, "bert-ja-trn1-2xlarge", "bert-ja-trn2", "bert-ja-cuda")


def resolved(name: str, *flags: str) -> Recipe:
    recipe = load_recipe(FOLDER / f"{name}.yaml", flags).recipe
    return resolve(recipe, backend=recipe.target.backend, devices=1).recipe


def optimizer(recipe: Recipe) -> tuple:
    found = recipe.optimizer
    return found.name, found.betas, found.eps, found.weight_decay, found.max_grad_norm


@pytest.mark.parametrize("kind", KINDS)
def test_procedure_a_is_bert_large_in_two_phases(kind: str):
    recipe = resolved(f"bert-large-pretrain-{kind}")
    assert (recipe.seed, recipe.model.preset) == (PROCEDURE_A["seed"], PROCEDURE_A["model"])
    found = []
    for _, phase in phase_recipes(recipe):
        assert phase.training.precision == PROCEDURE_A["precision"]
        assert optimizer(phase) == PROCEDURE_A["optimizer"]
        assert phase.data.masking is not None
        length, schedule = phase.data.sequence_length, phase.schedule
        assert f"seqlen{length}" in str(phase.data.train[0].path)
        assert (schedule.kind, schedule.min_ratio) == ("linear", 0.0)
        rate, rows = phase.optimizer.learning_rate, global_batch_size(phase)
        steps = (int(schedule.warmup.value), int(phase.training.duration.value))
        found.append((length, phase.data.masking.predictions(length), rows, rate, *steps))
    assert found == PROCEDURE_A["phases"]


@pytest.mark.parametrize("kind", KINDS)
def test_procedure_b_goes_on_training_llama(kind: str):
    recipe = resolved(f"llama3.1-8b-cpt-{kind}")
    source, training, schedule = recipe.data.train[0], recipe.training, recipe.schedule
    assert (recipe.seed, recipe.model.hub) == (PROCEDURE_B["seed"], PROCEDURE_B["model"])
    assert (source.hub, source.name) == PROCEDURE_B["text"]
    assert optimizer(recipe) == PROCEDURE_B["optimizer"]
    assert (recipe.data.sequence_length, training.global_batch_size) == (
        PROCEDURE_B["length"],
        PROCEDURE_B["rows"],
    )
    assert recipe.optimizer.learning_rate == PROCEDURE_B["learning_rate"]
    assert (schedule.kind, str(schedule.warmup), schedule.min_ratio) == PROCEDURE_B["schedule"]
    assert str(training.duration) == PROCEDURE_B["updates"]
    assert (training.precision, training.recompute) == ("bf16", "selective")
    assert recipe.parallel.zero1 is True
    assert recipe.parallel.sequence_parallel
    assert (recipe.data.eos, recipe.data.document_mask) == ("never", False)


def test_procedure_b_warms_up_as_was_seen():
    """T: step 1 at 1.50e-06 and step 2 at 3.00e-06, on 512 vCPU of four trn1.32xlarge."""
    peak, warmup = PROCEDURE_B["learning_rate"], 100
    assert [f"{peak * step / warmup:.2e}" for step in (1, 2)] == ["1.50e-06", "3.00e-06"]
    recipe = resolved("llama3.1-8b-cpt-trn1")
    accumulation = recipe.training.global_batch_size // 4
    assert (recipe.target.nodes, accumulation) == (4, 256)


@pytest.mark.parametrize("name", NAMES[-3:])
def test_procedure_c_tells_good_reviews_from_bad_ones(name: str):
    recipe = resolved(name)
    labels, training = recipe.data.labels, recipe.training
    assert labels is not None
    assert labels.classes == PROCEDURE_C["stars"]
    assert (labels.sample, labels.sample_heldout) == PROCEDURE_C["texts"]
    assert (recipe.model.hub, recipe.data.sequence_length) == (PROCEDURE_C["model"], PROCEDURE_C["length"])
    assert recipe.optimizer.learning_rate == PROCEDURE_C["learning_rate"]
    assert (str(training.duration), global_batch_size(recipe)) == (PROCEDURE_C["epochs"], PROCEDURE_C["rows"])
    rows = global_batch_size(recipe)
    updates = training.duration.steps(tokens_per_step=1, samples=4000, global_batch_size=rows)
    assert updates == PROCEDURE_C["updates"]


@pytest.mark.parametrize("name", TOPOLOGY)
def test_the_work_is_shared_out_to_the_machines(name: str):
    recipe = resolved(name)
    nodes, processes, tensor, data, rows = TOPOLOGY[name]
    assert (recipe.target.nodes, recipe.target.processes_per_node) == (nodes, processes)
    assert recipe.parallel.tensor_parallel_size == tensor
    assert recipe.parallel.data_parallel_size == data
    assert nodes * processes == tensor * data
    assert [phase.training.micro_batch_size for _, phase in phase_recipes(recipe)] == rows


@pytest.mark.parametrize("name", NAMES)
def test_each_names_its_backend(name: str):
    kind = next(kind for kind in KINDS if kind in name)
    assert load_recipe(FOLDER / f"{name}.yaml").recipe.target.backend == BACKENDS[kind]


@pytest.mark.parametrize("name", NAMES)
def test_its_cluster_has_its_machines_and_is_right(name: str):
    loaded = load_cluster(FOLDER / "clusters" / f"{name}.yaml")
    now = datetime(2026, 12, 1, tzinfo=timezone.utc)
    assert not [one for one in check(loaded, now) if one.level in ("error", "warning")]
    recipe = load_recipe(FOLDER / f"{name}.yaml").recipe
    assert sum(queue.max for queue in loaded.file.queues) == recipe.target.most


def test_the_clusters_of_the_procedures_are_as_they_were():
    """A: 0 to 16 machines, a head node c5.4xlarge with 1024 GB. B: 4 of 4, r6a.12xlarge, 1200 GB at /fsx."""
    seen = {}
    for name in ("bert-large-pretrain-trn1", "llama3.1-8b-cpt-trn1", "bert-ja-trn1-2xlarge"):
        file = load_cluster(FOLDER / "clusters" / f"{name}.yaml").file
        (queue,) = file.queues
        shared = (file.fsx.size_gb, file.fsx.type, file.fsx.mount) if file.fsx is not None else None
        head = (file.head.instance, file.head.disk_gb)
        seen[name] = (queue.instance, queue.min, queue.max, queue.disk_gb, *head, file.region, shared)
    fsx = (1200, "SCRATCH_2", "/fsx")
    assert seen == {
        "bert-large-pretrain-trn1": ("trn1.32xlarge", 0, 16, 1024, "c5.4xlarge", 1024, "us-west-2", fsx),
        "llama3.1-8b-cpt-trn1": ("trn1.32xlarge", 4, 4, 1024, "r6a.12xlarge", 1024, "us-west-2", fsx),
        "bert-ja-trn1-2xlarge": ("trn1.2xlarge", 0, 1, 200, "c5.4xlarge", 200, "us-west-2", None),
    }
