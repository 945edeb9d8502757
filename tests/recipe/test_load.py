import hashlib
from pathlib import Path

import pytest

from kitae.errors import RecipeError
from kitae.recipe.base import Duration
from kitae.recipe.load import load_recipe

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))


def test_values_base_and_hash(write, good):
    path = write()
    loaded = load_recipe(path)
    assert loaded.recipe.optimizer.learning_rate == 1e-4
    assert loaded.recipe.training.duration == Duration(20, "steps")
    assert [source.path for source in loaded.recipe.data.train] == ["a.txt", "b.jsonl"]
    assert loaded.base == path.parent
    assert loaded.text_hash == hashlib.sha256(good.encode()).hexdigest()


def test_origins_tell_where_each_value_came_from(write):
    origins = load_recipe(write(), ["data.heldout.fraction=0.2", "optimizer.betas=[0.9, 0.99]"]).origins
    assert origins["data.train.1.text_field"] == "recipe.yaml:11"
    assert origins["data.train.0.text_field"] == "default"
    assert origins["data.tokenizer.folder"] == "recipe.yaml:7"
    assert origins["data.heldout.fraction"] == origins["optimizer.betas"] == "--set"
    assert origins["model.shape.hidden_size"] == "preset llama-tiny"
    assert origins["optimizer.learning_rate"] == "recipe.yaml:17"
    assert origins["training.precision"] == "default"


def test_a_size_in_the_recipe_is_not_the_presets(write, good):
    origins = load_recipe(write(good.replace("tiny\n", "tiny\n  shape:\n    num_layers: 3\n"))).origins
    assert origins["model.shape.num_layers"] == "recipe.yaml:6"
    assert origins["model.shape.num_heads"] == "preset llama-tiny"


SETTINGS = {
    "number": ("optimizer.learning_rate=1e-3", lambda r: r.optimizer.learning_rate, 1e-3),
    "duration": ("training.duration=2 epochs", lambda r: r.training.duration, Duration(2, "epochs")),
    "text with an equals sign": ("sample={prompt: a=b}", lambda r: r.sample.prompt, "a=b"),
    "a new section": ("sample.prompt=Once", lambda r: r.sample.prompt, "Once"),
    "entry of a list": (
        "data.train.0.path=c.txt",
        lambda r: [s.path for s in r.data.train],
        ["c.txt", "b.jsonl"],
    ),
    "one more entry": ("data.train.2.path=c.txt", lambda r: [s.path for s in r.data.train][2:], ["c.txt"]),
    "whole list": ("data.train=[{path: c.txt}]", lambda r: [s.path for s in r.data.train], ["c.txt"]),
    "a list in a new section": ("proof.prompts.0=Hello", lambda r: r.proof.prompts, ["Hello"]),
    "null": ("optimizer.max_grad_norm=null", lambda r: r.optimizer.max_grad_norm, None),
    "nothing is null": ("data.heldout=", lambda r: r.data.heldout, None),
    "truth": ("data.document_mask=false", lambda r: r.data.document_mask, False),
    "blanks around the key": (" seed = 5", lambda r: r.seed, 5),
    "quoted": ("name='7'", lambda r: r.name, "7"),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_set_changes_a_value(case, write):
    flag, look, value = SETTINGS[case]
    assert look(load_recipe(write(), [flag]).recipe) == value


def test_the_last_flag_wins_and_flags_add_up(write):
    flags = ["seed=1", "data.tokenizer.folder=null", "seed=2", "data.tokenizer.named=smollm2-135m"]
    recipe = load_recipe(write(), flags).recipe
    assert (recipe.seed, recipe.data.tokenizer.named, recipe.data.tokenizer.folder) == (
        2,
        "smollm2-135m",
        None,
    )


BAD_SETTINGS = {
    "no value": ("seed", "write it as --set section.key=value"),
    "no key": ("=3", "write it as --set section.key=value"),
    "hole in the key": ("a..b=3", "write it as --set section.key=value"),
    "unknown key": (
        "training.durration=3 steps",
        "training.durration: unknown key; did you mean training.duration?",
    ),
    "a section that moved": (
        "tensorboard.enabled=true",
        "tensorboard: unknown key; TensorBoard is one",
    ),
    "unknown section": (
        "trainin.duration=3 steps",
        "trainin: unknown key; did you mean training or tracking?",
    ),
    "wrong type": ("seed=many", "seed: found 'many' (text); write a whole number of at least 0"),
    "number for text": ("name=10", "name: found 10 (a whole number); write text, in quotes: '10'"),
    "below a value": ("seed.x=1", "seed: found a mapping with x; write a whole number"),
    "far entry": (
        "data.train.7.path=x",
        "data.train has 2 entries in the recipe; write a number from 0 to 2",
    ),
    "word as entry": ("data.train.first.path=x", "in the place of 'first'"),
    "syntax": ("seed=[1", "not valid YAML"),
    "two alternatives": (
        "model.hub=a/b",
        "model: give exactly one of folder, hub, named, run, preset; found hub and",
    ),
    "version": ("kitae=2", "kitae: found 2 (a whole number); write 1"),
}


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_a_bad_flag_is_named(case, write):
    flag, message = BAD_SETTINGS[case]
    with pytest.raises(RecipeError) as caught:
        load_recipe(write(), [flag])
    assert str(caught.value).startswith(("--set " + flag, str(write())))
    assert message in str(caught.value)


def test_home_is_expanded(write, good, monkeypatch):
    monkeypatch.setenv("HOME", "/home/kaji")
    recipe = load_recipe(write(good.replace("a.txt", "~/a.txt"))).recipe
    assert recipe.data.train[0].path == "/home/kaji/a.txt"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_shipped_recipes_load(path):
    assert load_recipe(path).recipe.name == path.stem
