"""A recipe made small: what changes, what stays, and that nothing more changes the second time."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.catalog import preset
from kitae.recipe.load import LoadedRecipe, load_recipe
from kitae.recipe.resolve import resolve
from kitae.recipe.scale_down import Reach, ScaledDown, scale_down
from kitae.recipe.scale_shape import decoder_heads, small_shape
from kitae.recipe.schema import Recipe, global_batch_size, phase_recipes
from kitae.recipe.small_inputs import Prose, Reviews, Shards, SmallModel, folder_name

FOLDER = Path(__file__).resolve().parents[2] / "recipes"
ALL = sorted(path.name for path in FOLDER.glob("*.yaml"))
HUBS = {
    "meta-llama/Llama-3.1-8B": "llama3.1-8b",
    "cl-tohoku/bert-base-japanese-whole-word-masking": "bert-base-ja",
}


def small_config_of(model):
    """The sizes of a made model, which are below any limit."""
    if model.folder is not None and model.folder.startswith("/small"):
        return {"hidden_size": 128, "num_hidden_layers": 2}
    return preset(HUBS[model.hub]).config if model.hub in HUBS else None


def reach(source_bytes=lambda source: None, **others) -> Reach:
    """Nothing is here but what is made, which is in /small."""
    here = {
        "source_bytes": lambda one: 1000 if (one.path or "").startswith("/small") else source_bytes(one),
        "config": small_config_of,
        "tokenizer": lambda one: (one.folder or "").startswith("/small"),
        "place": lambda one: f"/small/{folder_name(one)}",
    }
    return Reach(**{**here, **others})


def scaled(name: str, *flags: str, at: Reach | None = None) -> tuple[LoadedRecipe, ScaledDown, Recipe]:
    loaded = load_recipe(FOLDER / name, flags)
    found = scale_down(loaded.recipe, at or reach(), flags)
    return loaded, found, load_recipe(FOLDER / name, [*found.flags, *flags]).recipe


def becomes(found: ScaledDown) -> dict[str, tuple]:
    return {one.path: (one.before, one.after) for one in found.changes}


@pytest.mark.parametrize("name", ALL)
def test_any_recipe_is_right_when_small_and_becomes_no_smaller(name: str):
    loaded, found, small = scaled(name)
    assert all(one.why and one.before != one.after for one in found.changes)
    assert not [one for one in resolve(small, backend="cpu").warnings if "data.labels" in one]
    again = scale_down(small, reach())
    assert becomes(again) == {}
    kept = ("objective", "optimizer.name", "training.precision", "training.recompute", "seed", "proof")
    for path in kept:
        before, after = loaded.recipe, small
        for part in path.split("."):
            before, after = getattr(before, part), getattr(after, part)
        assert before == after, path
    assert [one.name for one in small.phases] == [one.name for one in loaded.recipe.phases]
    assert (small.target.kind, small.target.most) == ("local", 1)
    parallel = resolve(small, backend="cpu").recipe.parallel
    assert parallel.tensor_parallel_size * parallel.data_parallel_size <= 8


def test_bert_large_keeps_two_phases_of_shards():
    _, found, small = scaled("bert-large-pretrain-trn1.yaml")
    changes = becomes(found)
    assert changes["name"] == ("bert-large-pretrain-trn1", "bert-large-pretrain-trn1-small")
    assert changes["model.shape.num_layers"] == (24, 2)
    assert changes["model.shape.num_heads"] == (16, 4)
    assert changes["model.shape.intermediate_size"] == (4096, 256)
    assert changes["parallel.data_parallel_size"] == (512, 2)
    assert changes["training.duration"] == ("28125 steps", "12 steps")
    assert changes["checkpoint.every"] == ("500 steps", "6 steps")
    phases = [phase for _, phase in phase_recipes(small)]
    assert [phase.data.sequence_length for phase in phases] == [32, 128]
    assert [(global_batch_size(one), one.training.micro_batch_size) for one in phases] == [(16, 4), (8, 2)]
    assert [str(one.schedule.warmup) for one in phases] == ["1 steps", "6 steps"]
    assert [one.data.train[0].format for one in phases] == ["hdf5", "hdf5"]
    shards = [one for one in found.inputs if isinstance(one, Shards)]
    assert [(one.length, one.predictions) for one in shards] == [(32, 5), (128, 20)]
    assert small.model.preset == "bert-large"


def test_llama_keeps_copies_of_key_value_heads():
    """B: 32 ranks of 8 key-value heads become 4 of 2, and 4 query heads to each stay."""
    _, found, small = scaled("llama3.1-8b-cpt-trn1.yaml")
    changes = becomes(found)
    assert changes["parallel.tensor_parallel_size"] == (32, 4)
    assert changes["parallel.data_parallel_size"] == (4, 2)
    assert changes["training.global_batch_size"] == (1024, 4)
    assert changes["target"] == ("slurm, xla, 4 nodes", {"kind": "local", "backend": "cpu"})
    (model,) = [one for one in found.inputs if isinstance(one, SmallModel)]
    assert '"num_attention_heads": 8' in model.config
    assert '"num_key_value_heads": 2' in model.config
    assert '"rope_type": "llama3"' in model.config
    assert (model.dtype, model.pieces.kind) == ("bf16", "bpe")
    assert Prose("english") in found.inputs
    assert small.parallel.sequence_parallel
    assert small.parallel.zero1 is True


def test_the_japanese_classifier_keeps_its_labels():
    _, found, small = scaled("bert-ja-trn1-2xlarge.yaml")
    (reviews,) = [one for one in found.inputs if isinstance(one, Reviews)]
    assert reviews == Reviews("japanese", "review_body", "stars", None, (("1", "2"), ("4", "5")), ("3",))
    assert small.parallel.data_parallel_size == 2
    assert small.data.labels is not None
    assert small.data.labels.classes == {"1": 0, "2": 0, "4": 1, "5": 1}
    assert (small.data.labels.sample, small.data.labels.sample_heldout) == (256, 64)
    assert becomes(found)["optimizer.learning_rate"] == (5e-5, 6e-4)
    assert small.data.dictionary == "ipadic"


def test_what_a_person_gives_stays():
    flags = ["training.duration=300 steps", "parallel.data_parallel_size=1"]
    _, found, small = scaled("llama3.1-8b-cpt-trn1.yaml", *flags, "target.kind=slurm")
    assert "training.duration" not in becomes(found)
    assert str(small.training.duration) == "300 steps"
    assert (small.parallel.data_parallel_size, small.training.global_batch_size) == (1, 2)
    assert (small.target.kind, small.target.backend) == ("slurm", "cpu")


def test_own_text_is_read_unless_it_is_large():
    flags = ["data.train=[{path: /mine/*.txt}]"]
    _, kept, _ = scaled("llama3.1-8b-cpt-trn1.yaml", at=reach(lambda source: 5_000_000))
    assert "data.train" not in becomes(kept)
    name = "bert-mlm-cpu.yaml"
    loaded = load_recipe(FOLDER / name, flags)
    large = scale_down(loaded.recipe, reach(lambda source: 90_000_000_000))
    why = {one.path: one.why for one in large.changes}
    assert why["data.train"] == "90,000 MB would take long to read"
    assert {one.path: one.why for one in scale_down(loaded.recipe, reach()).changes}[
        "data.train"
    ] == "it is not here"


def test_shards_of_another_length_are_not_read():
    _, found, _ = scaled(
        "bert-large-pretrain-trn1.yaml", at=reach(lambda source: 1000, tokenizer=lambda one: True)
    )
    assert "data.tokenizer" not in becomes(found)
    why = {one.path: one.why for one in found.changes}
    assert why["data.train"] == "its rows are of another length or tokenizer"


def test_a_flag_says_where_it_is_from():
    loaded = load_recipe(FOLDER / "llama3.1-8b-cpt-trn1.yaml")
    flags = scale_down(loaded.recipe, reach()).flags
    flags = pickle.loads(pickle.dumps(flags))  # as another process gets them
    origins = load_recipe(FOLDER / "llama3.1-8b-cpt-trn1.yaml", [*flags, "target.nodes=1"]).origins
    assert origins["training.duration"] == "--scale-down"
    assert origins["target.nodes"] == "--set"
    assert origins["optimizer.betas"] == "llama3.1-8b-cpt-trn1.yaml:27"


@settings(deadline=None, max_examples=60)
@given(
    kv_heads=st.sampled_from([1, 2, 4, 8, 16, 32]),
    group=st.sampled_from([1, 2, 3, 4, 7, 8]),
    ranks=st.sampled_from([1, 2, 4, 8, 16, 32, 64]),
)
def test_heads_share_out_to_ranks_as_they_did(kv_heads: int, group: int, ranks: int):
    config = {"num_attention_heads": kv_heads * group, "num_key_value_heads": kv_heads}
    small_ranks = min(ranks, 4)
    found = decoder_heads(config, ranks, small_ranks)
    heads, few = found["num_heads"], found["num_kv_heads"]
    assert heads == few * group
    assert few % small_ranks == 0 or small_ranks % few == 0
    assert heads % small_ranks == 0
    if ranks > kv_heads and ranks > 1 and group % 2 == 0:
        assert small_ranks == 2 * few


def test_inner_layers_stay_in_proportion():
    found = small_shape(preset("llama3.1-8b").config, 32, 4)
    assert found == {
        "num_layers": 2,
        "hidden_size": 128,
        "intermediate_size": 448,
        "num_heads": 8,
        "num_kv_heads": 2,
        "head_dim": 16,
    }
