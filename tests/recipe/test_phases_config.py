import pytest

from kitae.errors import RecipeError
from kitae.recipe.load import load_recipe
from kitae.recipe.paths import with_absolute_paths
from kitae.recipe.resolve import dump_resolved, resolve
from kitae.recipe.schema import global_batch_size, phase_recipes

RECIPE = """
kitae: 1
name: two
objective: masked-lm
model: {preset: bert-tiny}
data: {train: [{path: a}], tokenizer: {folder: t}, sequence_length: 128}
optimizer: {name: lamb, learning_rate: 6e-3, weight_decay: 0.01}
training: {duration: 100 steps, global_batch_size: 64}
phases:
  - name: one
  - name: two
    data: {train: [{path: b}], sequence_length: 512}
    training: {duration: 10 steps, global_batch_size: 32}
    optimizer: {learning_rate: 4e-3}
"""


@pytest.fixture
def load(tmp_path):
    def write(text=RECIPE, changes=()):
        (tmp_path / "recipe.yaml").write_text(text)
        return load_recipe(tmp_path / "recipe.yaml", changes).recipe

    return write


def test_a_phase_is_the_recipe_with_some_values_changed(load):
    (first, one), (second, two) = phase_recipes(load())
    assert (first, second) == ("one", "two")
    assert (one.data.sequence_length, two.data.sequence_length) == (128, 512)
    assert (one.optimizer.learning_rate, two.optimizer.learning_rate) == (6e-3, 4e-3)
    assert one.optimizer.weight_decay == two.optimizer.weight_decay == 0.01
    assert (str(one.training.duration), str(two.training.duration)) == ("100 steps", "10 steps")
    assert [one.data.train[0].path, two.data.train[0].path] == ["a", "b"]


def test_a_recipe_without_phases_is_one(load):
    recipe = load(RECIPE.split("phases:")[0])
    assert phase_recipes(recipe) == [(None, recipe)]


def test_each_phase_gets_its_own_micro_batches(load, tmp_path):
    """What fits rows of 128 tokens is too much for rows of 512."""
    resolved = resolve(load(), backend="cpu").recipe
    sizes = [recipe.training.micro_batch_size for _, recipe in phase_recipes(resolved)]
    assert sizes == [64, 16]
    assert [recipe.evaluation.micro_batch_size for _, recipe in phase_recipes(resolved)] == sizes
    assert resolve(resolved, backend="cpu").recipe == resolved
    (tmp_path / "again.yaml").write_text(dump_resolved(resolved))
    assert load_recipe(tmp_path / "again.yaml").recipe == resolved


def test_paths_of_phases_start_at_the_recipe(load, tmp_path):
    recipe = with_absolute_paths(load(), tmp_path)
    assert [one.data.train[0].path for _, one in phase_recipes(recipe)] == [
        str(tmp_path / name) for name in "ab"
    ]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ("phases.1.name=one", r"phases\.1\.name: one is the name of an earlier phase"),
        ("phases.1.training.micro_batch_size=5", r"phases\.1\.training\.micro_batch_size: .*multiple of 5"),
        ("phases.1.schedule={warmup: 11 steps}", r"phases\.1\.schedule\.warmup: '11 steps' is longer"),
        ("phases.1.optimizer.name=adamw", r"unknown"),
    ],
)
def test_rules_name_the_phase(load, change, match):
    with pytest.raises(RecipeError, match=match):
        load(changes=[change])


def test_copies_that_bring_a_whole_batch_each(load):
    changes = ["parallel.data_parallel_size=2", "parallel.keep_global_batch=false"]
    recipe = resolve(load(changes=changes), backend="cpu", devices=2).recipe
    assert global_batch_size(recipe) == 128
    assert recipe.training.micro_batch_size == 64
    kept = resolve(load(changes=changes[:1]), backend="cpu", devices=2).recipe
    assert (global_batch_size(kept), kept.training.micro_batch_size) == (64, 32)
    odd = ["parallel.data_parallel_size=3", "parallel.keep_global_batch=false"]
    assert global_batch_size(resolve(load(changes=odd), backend="cpu").recipe) == 192


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ("data.labels={field: stars}", r"data\.labels: masked-lm learns no labels"),
        ("objective=classification", r"data\.labels: objective: classification needs it"),
        ("sample={prompt: Once}", r"sample: a model of masked-lm continues no text"),
    ],
)
def test_sections_belong_to_objectives(load, change, match):
    with pytest.raises(RecipeError, match=match):
        load(changes=[change])


def test_dropout_is_for_encoders(load):
    text = RECIPE.replace("masked-lm", "causal-lm").replace("bert-tiny", "llama-tiny")
    recipe = load(text.split("phases:")[0], ["training.dropout=0.1"])
    assert any(
        line.startswith("training.dropout: has no effect") for line in resolve(recipe, backend="cpu").warnings
    )
