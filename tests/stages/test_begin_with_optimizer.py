"""A run that goes on with the optimizer of another: a kitae run, or one that was converted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from job_case import kitae, recipe_values, write_case, write_recipe

from kitae.checkpoint.resume import find_checkpoint
from kitae.train.schedule import Schedule


@pytest.fixture(scope="module")
def old(tmp_path_factory) -> Path:
    """The folder of a case whose run of 6 steps was converted to the folder `from-elsewhere`."""
    folder = tmp_path_factory.mktemp("old")
    recipe = write_case(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("KITAE_CACHE", str(folder / "cache"))
        assert kitae("train", recipe) == 0
        assert kitae("convert", "runs/tiny", "from-elsewhere", "--to", "kitae", "--proof", "values") == 0
    return folder


@pytest.fixture
def case(old: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(old)
    monkeypatch.setenv("KITAE_CACHE", str(old / "cache"))
    return old


def new_recipe(case: Path, name: str, steps: int, **model: object) -> Path:
    training = {**recipe_values()["training"], "duration": f"{steps} steps"}  # type: ignore[dict-item]
    model = {"run": "from-elsewhere", "with_optimizer": True, **model}
    return write_recipe(case, name=name, training=training, model=model)


def test_steps_and_schedule_go_on_and_the_data_begin_anew(case: Path, capsys: pytest.CaptureFixture):
    assert kitae("train", new_recipe(case, "on", 8)) == 0
    assert "beginning after step 6 of 8, with the state of" in capsys.readouterr().out
    lines = [json.loads(line) for line in (case / "runs/on/metrics.jsonl").read_text().splitlines()]
    updates = [line for line in lines if line["kind"] == "train"]
    assert [line["step"] for line in updates] == [7, 8]
    from kitae.recipe.load import load_recipe

    recipe = load_recipe(case / "runs/on/recipe.yaml").recipe
    schedule = Schedule(recipe.schedule, recipe.optimizer.learning_rate, 8, 0)
    assert updates[0]["learning_rate"] == pytest.approx(schedule.rate(6))
    checkpoint = find_checkpoint(case / "runs/on")
    assert (checkpoint.step, checkpoint.state["consumed_samples"]) == (8, 2 * 4)


def test_it_resumes_from_its_own_checkpoints(case: Path, capsys: pytest.CaptureFixture):
    recipe = new_recipe(case, "resumed", 8)
    assert kitae("train", recipe, "--set", "checkpoint.every=1 step") == 0
    (case / "runs/resumed/results.json").unlink()
    capsys.readouterr()
    assert kitae("train", recipe, "--set", "checkpoint.every=1 step") == 0
    assert "beginning after step" not in capsys.readouterr().out


def test_the_moments_matter(case: Path):
    """One more update, with and without them, gives other weights."""
    for name, flag in (("with", True), ("without", False)):
        steps = 7 if flag else 1
        assert kitae("train", new_recipe(case, name, steps, with_optimizer=flag)) == 0
    first, second = (
        find_checkpoint(case / "runs" / name).source("exp_avg_sq") for name in ("with", "without")
    )
    name = "model.layers.0.mlp.down_proj.weight"
    assert first.read(name).sum() > 10 * second.read(name).sum()


def test_a_training_that_would_be_over(case: Path, capsys: pytest.CaptureFixture):
    assert kitae("train", new_recipe(case, "short", 6)) == 2
    assert "training.duration: the training ends after step 6, and" in capsys.readouterr().err


def test_without_a_run_it_has_no_effect(case: Path, capsys: pytest.CaptureFixture):
    recipe = write_recipe(case, name="none", model={"folder": "model", "with_optimizer": True})
    assert kitae("train", recipe) == 2
    assert "with_optimizer: has no effect without run" in capsys.readouterr().err


def test_weights_without_an_optimizer(case: Path, capsys: pytest.CaptureFixture):
    assert kitae("convert", "model", "weights-only", "--to", "kitae", "--proof", "none") == 0
    assert kitae("train", new_recipe(case, "bare", 8, run="weights-only")) == 4
    assert "holds no tensors of kind 'exp_avg'" in capsys.readouterr().err
