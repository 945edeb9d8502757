"""The recipes of the repository load, and the full-size ones say what the old procedures say."""

from __future__ import annotations

from pathlib import Path

import pytest

from kitae.recipe.load import load_recipe
from kitae.recipe.resolve import resolve
from kitae.recipe.schema import Recipe, global_batch_size, phase_recipes

FOLDER = Path(__file__).resolve().parents[2] / "recipes"
ALL = sorted(path.name for path in FOLDER.glob("*.yaml"))
CORES = 16 * 32
"""Of 16 trn1.32xlarge."""


def load(name: str, *flags: str) -> Recipe:
    return load_recipe(FOLDER / name, flags).recipe


@pytest.mark.parametrize("name", ALL)
def test_it_loads_without_a_warning_under_the_name_of_its_file(name: str):
    recipe = load(name)
    assert f"{recipe.name}.yaml" == name
    assert resolve(recipe, backend="cpu").warnings == ()


@pytest.mark.parametrize(
    ("name", "optimizer", "phases"),
    [
        (
            "bert-large-pretrain-trn1.yaml",
            "adamw",
            [(128, 16384, 16, 4e-4, 2000, 28125, 2), (512, 32768, 2, 2.8e-4, 781, 1563, 32)],
        ),
        (
            "bert-large-pretrain-lamb-trn1.yaml",
            "lamb",
            [(128, 65536, 16, 6e-3, 2000, 7032, 8), (512, 32768, 2, 4e-3, 781, 1563, 32)],
        ),
    ],
)
def test_bert_large_is_the_vendors_two_phases(name: str, optimizer: str, phases: list[tuple]):
    """Procedure A: length, rows an update, rows a core, rate, warm-up, updates; accumulation on 16 nodes."""
    recipe = load(name)
    assert recipe.parallel.data_parallel_size == CORES
    found = []
    for _, phase in phase_recipes(recipe):
        training, config = phase.training, phase.optimizer
        assert (training.precision, config.name) == ("bf16-sr", optimizer)
        assert (config.betas, config.eps, config.weight_decay, config.max_grad_norm) == (
            (0.9, 0.999),
            1e-6,
            0.01,
            1.0,
        )
        assert config.max_trust_ratio == {"adamw": None, "lamb": 1.0}[optimizer]
        assert (phase.schedule.kind, phase.schedule.min_ratio) == ("linear", 0.0)
        rows, each = training.global_batch_size, training.micro_batch_size
        assert phase.data.masking is not None
        assert (
            phase.data.masking.predictions(phase.data.sequence_length)
            == {128: 20, 512: 80}[phase.data.sequence_length]
        )
        assert f"seqlen{phase.data.sequence_length}" in str(phase.data.train[0].path)
        found.append(
            (
                phase.data.sequence_length,
                rows,
                each,
                config.learning_rate,
                int(phase.schedule.warmup.value),
                int(training.duration.value),
                rows // (each * CORES),
            )
        )
    assert found == phases
    assert recipe.seed == 12349
    assert recipe.model.preset == "bert-large"


@pytest.mark.parametrize("nodes", [1, 2, 4, 8, 16, 32])
def test_strong_scaling_keeps_the_batch_on_any_number_of_nodes(nodes: int):
    recipe = load("bert-large-pretrain-trn1.yaml", f"parallel.data_parallel_size={32 * nodes}")
    assert [global_batch_size(phase) for _, phase in phase_recipes(recipe)] == [16384, 32768]


def test_weak_scaling_keeps_the_work_of_a_core():
    """16 rows, 32 times: the vendor's way on one node."""
    changes = ["parallel.keep_global_batch=false", "training.global_batch_size=512"]
    recipe = load("bert-large-pretrain-trn1.yaml", *changes)
    assert global_batch_size(phase_recipes(recipe)[0][1]) == 512 * CORES


@pytest.mark.parametrize(("cores", "rows", "steps"), [(1, 8, 5000), (2, 16, 2500)])
def test_the_japanese_classifier_is_the_procedures(cores: int, rows: int, steps: int):
    """Procedure C: 10 epochs of 4,000 texts, 8 a core: 5,000 updates on one, 2,500 on two."""
    recipe = load("bert-ja-trn1-2xlarge.yaml", f"parallel.data_parallel_size={cores}")
    labels, training = recipe.data.labels, recipe.training
    assert labels is not None
    assert labels.classes == {"1": 0, "2": 0, "4": 1, "5": 1}
    assert (labels.sample, labels.sample_heldout, recipe.data.sequence_length) == (4000, 256, 128)
    assert recipe.model.hub == "cl-tohoku/bert-base-japanese-whole-word-masking"
    assert recipe.data.dictionary == "ipadic"
    assert recipe.optimizer.learning_rate == 5e-5
    assert (training.precision, recipe.schedule.kind) == ("bf16-sr", "linear")
    batch = global_batch_size(recipe)
    assert batch == rows
    updates = training.duration.steps(tokens_per_step=1, samples=4000, global_batch_size=batch)
    assert updates == steps
