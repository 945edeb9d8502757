"""What is measured of a recipe: its widths, folders, rounds and keys."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from job_case import recipe_values

from kitae.errors import RecipeError
from kitae.recipe.load import load_recipe
from kitae.scale.recipes import Wanted
from kitae.scale.setup import BASE, MEASURED, Setup, failure, note_failure
from kitae.stages.files import read_json, write_json

PHASES = [
    {"name": "short", "training": {"global_batch_size": 8}},
    {"name": "long", "data": {"sequence_length": 64}, "training": {"global_batch_size": 4}},
]


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def setup(folder: Path, *, kind="strong", unit="workers", widths=(1, 2), changes=(), **recipe) -> Setup:
    options = {name: recipe.pop(name) for name in ("repeats", "phase", "steps") if name in recipe}
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe_values(**recipe)))
    wanted = {"repeats": 3, "steps": 20, "warm_up": 2, "threshold": 0.8, **options}
    return Setup.of(Wanted(path, changes, kind, unit, list(widths), **wanted))


def test_rounds_go_up_and_down(at):
    orders = [(one.round, one.width) for one in setup(at).orders()]
    assert orders == [(1, 1), (1, 2), (2, 2), (2, 1), (3, 1), (3, 2)]
    assert {one.updates for one in setup(at).orders()} == {22}


def test_a_trial_is_the_recipe_with_other_copies_and_nothing_beside_the_training(at):
    changed = {"checkpoint": {"every": "2 steps"}, "evaluation": {"every": "2 steps"}}
    found = setup(at, **changed)
    folder = found.lay_out(next(one for one in found.orders() if one.width == 2))
    assert folder == at / "runs/tiny/scale/strong-workers/trials/w0002-r1"
    recipe = load_recipe(folder / "recipe.yaml").recipe
    assert (recipe.name, recipe.runs) == (folder.name, str(folder.parent))
    assert (recipe.parallel.data_parallel_size, recipe.training.global_batch_size) == (2, 4)
    assert (recipe.checkpoint.every, recipe.sample) == ("never", None)
    assert recipe.data.heldout is not None  # which rows are trained on depends on it
    assert recipe.data.train[0].path == str(at / "text/train.txt")


def test_weak_scaling_makes_the_update_grow(at):
    found = setup(at, kind="weak", widths=(1, 2, 4))
    assert [one.training.global_batch_size for one in found.recipes.values()] == [4, 8, 16]
    of_two = setup(at, kind="weak", widths=(1, 2, 4), parallel={"data_parallel_size": 2})
    assert [one.training.global_batch_size for one in of_two.recipes.values()] == [2, 4, 8]


def test_a_batch_of_each_copy_is_counted_out(at):
    parallel = {"data_parallel_size": 2, "keep_global_batch": False}
    found = setup(at, parallel=parallel)
    assert {one.training.global_batch_size for one in found.recipes.values()} == {8}
    assert all(one.parallel.keep_global_batch for one in found.recipes.values())


def test_nodes_are_those_of_the_target(at):
    target = {"kind": "slurm", "nodes": 2, "processes_per_node": 2, "time_limit": "30"}
    training = {"duration": "6 steps", "global_batch_size": 16, "micro_batch_size": 2}
    found = setup(at, unit="nodes", kind="weak", widths=(1, 2, 4), target=target, training=training)
    assert [one.target.nodes for one in found.recipes.values()] == [1, 2, 4]
    assert [one.training.global_batch_size for one in found.recipes.values()] == [8, 16, 32]
    assert [one.parallel.data_parallel_size for one in found.recipes.values()] == [2, 4, 8]
    assert {one.target.time_limit for one in found.recipes.values()} == {"30"}


def test_nodes_whose_processes_nobody_knows_are_refused(at):
    with pytest.raises(RecipeError, match=r"give it with --set target\.processes_per_node=32"):
        setup(at, unit="nodes", target={"kind": "slurm", "backend": "xla"})
    ssh = {"kind": "ssh", "host": "head", "folder": "/fsx"}
    with pytest.raises(RecipeError, match="run kitae scale on the head node"):
        setup(at, unit="nodes", target=ssh)
    assert setup(at, unit="workers", target=ssh).recipes[1].target.kind == "local"


def test_a_phase_is_measured_as_a_recipe_of_its_own(at):
    first = setup(at, phases=PHASES)
    assert (first.phase, first.recipes[1].training.global_batch_size) == ("short", 8)
    assert first.folder.name == "strong-workers-short"
    long = setup(at, phases=PHASES, phase="long")
    assert (long.recipes[1].data.sequence_length, long.recipes[1].phases) == (64, [])
    with pytest.raises(RecipeError, match=r"--phase lang: .* did you mean .*long.*short, long"):
        setup(at, phases=PHASES, phase="lang")
    with pytest.raises(RecipeError, match=r"--phase long: .* it has no phases"):
        setup(at, phase="long")


def test_more_repeats_go_on_and_anything_else_is_another_measurement(at):
    key = setup(at).key
    assert setup(at, repeats=5).key == key
    assert setup(at, changes=["export.dtype=bf16", "name=tiny"]).key == key
    for other in (
        setup(at, kind="weak", widths=(1, 2, 4)),
        setup(at, steps=10),
        setup(at, changes=["optimizer.learning_rate=0.1"]),
        setup(at, kind="weak"),
    ):
        assert other.key != key


def test_earlier_measurements_of_something_else_are_set_aside(at):
    first = setup(at)
    assert first.begin() is None
    order = next(first.orders())
    write_json(first.lay_out(order) / MEASURED, {"key": first.key})
    assert first.is_done(order)
    assert len(first.missing()) == 5
    assert setup(at, repeats=4).begin() is None
    assert len(setup(at, repeats=4).missing()) == 7
    other = setup(at, steps=10)
    assert other.begin() == first.folder.parent / "old/strong-workers-1"
    assert len(other.missing()) == 6
    assert read_json(first.folder / BASE / "recipe.yaml") == {}
    assert (first.folder / BASE / "recipe.yaml").is_file()


def test_a_failure_is_forgotten_when_it_is_tried_again(at):
    found = setup(at)
    order = next(found.orders())
    folder = found.lay_out(order)
    note_failure(folder, "out of memory")
    assert failure(folder) == "out of memory"
    found.lay_out(order)
    assert failure(folder) is None


def test_a_width_that_does_not_share_the_batch_is_refused(at):
    with pytest.raises(RecipeError, match=r"--workers 4: 4 rows .* accumulation would be 0\.5"):
        setup(at, widths=(1, 4))


def test_a_run_is_measured_where_it_lies(at, monkeypatch):
    recipe = setup(at).wanted.recipe
    run = at / "elsewhere/tiny"
    run.mkdir(parents=True)
    recipe.rename(run / "recipe.yaml")
    monkeypatch.chdir(run)
    found = Setup.of(Wanted(Path(), (), "strong", "workers", [1, 2], 3, 20, 2, 0.8))
    assert found.folder == run / "scale/strong-workers"
    assert not (run / "runs").exists()


def test_a_folder_that_is_no_run(at):
    (at / "empty").mkdir()
    with pytest.raises(RecipeError, match="neither a recipe nor a run"):
        Setup.of(Wanted(at / "empty", (), "strong", "workers", [1, 2], 3, 20, 2, 0.8))
