import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.errors import RecipeError
from kitae.recipe.load import load_recipe
from kitae.recipe.paths import with_absolute_paths
from kitae.recipe.resolve import dump_resolved, resolve
from kitae.recipe.schema import Recipe


def choices_of(resolved):
    return {choice.path: (choice.value, choice.reason) for choice in resolved.choices}


def test_precision_goes_by_the_backend_and_says_why(write):
    recipe = load_recipe(write()).recipe
    assert choices_of(resolve(recipe, backend="cpu"))["training.precision"] == (
        "fp32",
        "cpu: bf16 pays only on CPUs with instructions for it",
    )
    assert resolve(recipe, backend="cuda").recipe.training.precision == "bf16"
    with pytest.raises(RecipeError, match="did you mean cuda"):
        resolve(recipe, backend="cud")


@pytest.mark.parametrize(
    ("rows", "length", "micro"),
    [
        (8, 512, 8),
        (8, 2048, 4),
        (12, 2048, 4),
        (7, 2048, 1),
        (300, 256, 30),
        (8, 8192, 1),
        (8, 9000, 1),
        (100000, 2, 4000),
    ],
)
def test_the_micro_batch_is_the_largest_divisor_up_to_8192_tokens(rows, length, micro, write):
    flags = [f"training.global_batch_size={rows}", f"data.sequence_length={length}"]
    resolved = resolve(load_recipe(write(), flags).recipe, backend="cpu")
    assert resolved.recipe.training.micro_batch_size == micro
    assert resolved.recipe.evaluation.micro_batch_size == micro
    assert str(length) in choices_of(resolved)["training.micro_batch_size"][1]


def test_given_values_are_no_choices(write):
    flags = [
        "training.micro_batch_size=2",
        "training.precision=bf16",
        "evaluation.micro_batch_size=3",
        "data.bos=never",
        "parallel={data_parallel_size: 1, zero1: false}",
    ]
    resolved = resolve(load_recipe(write(), flags).recipe, backend="cpu")
    open_ones = {"data.eos", "data.workers", "export.dtype", "target.processes_per_node"}
    assert set(choices_of(resolved)) == open_ones
    assert resolved.recipe.evaluation.micro_batch_size == 3


def test_the_tokenizer_is_the_models_own(write, good):
    text = good.replace("preset: llama-tiny", "hub: a/b\n  revision: v1").replace(
        ":\n    folder: words", ": auto"
    )
    resolved = resolve(load_recipe(write(text)).recipe, backend="cpu")
    assert (resolved.recipe.data.tokenizer.hub, resolved.recipe.data.tokenizer.revision) == ("a/b", "v1")
    run = resolve(load_recipe(write(text), ["model={run: runs/x}"]).recipe, backend="cpu")
    assert choices_of(run)["data.tokenizer"] == ("auto", "the tokenizer that the run was trained with")


def test_what_only_the_files_tell_stays_automatic_and_says_so(write):
    chosen = choices_of(resolve(load_recipe(write()).recipe, backend="cpu"))
    for path in ("data.bos", "data.eos", "data.workers"):
        assert chosen[path][0] == "auto"
        assert chosen[path][1].startswith("known when")
    assert chosen["export.dtype"][0] == "fp32", "a new model has no type to keep"


WARNINGS = {
    "keep_best": (
        ["data.heldout=null", "checkpoint.keep_best=true"],
        "checkpoint.keep_best: has no effect without",
    ),
    "trust": (
        ["optimizer.max_trust_ratio=1"],
        "optimizer.max_trust_ratio: has no effect with optimizer.name adamw",
    ),
    "every": (["data.heldout=null", "evaluation.every=5 steps"], "evaluation.every: has no effect without"),
    "max_rows": (
        ["data.heldout=null", "evaluation.max_rows=5"],
        "evaluation.max_rows: has no effect without",
    ),
    "evaluation too rare": (["evaluation.every=21 steps"], "evaluation.every: '21 steps' is longer than"),
    "checkpoint too rare": (["checkpoint.every=21 steps"], "checkpoint.every: '21 steps' is longer than"),
    "keep": (["checkpoint.keep=3"], "checkpoint.keep: has little effect"),
    "min_ratio": (["schedule.kind=constant", "schedule.min_ratio=0.1"], "schedule.min_ratio: has no effect"),
    "document": (
        ["data.train.1.format=jsonl", "data.train.1.document=line"],
        "data.train.1.document: has no effect on jsonl",
    ),
    "document of the hub": (
        ["data.train.0={hub: a/b, document: line}"],
        "data.train.0.document: has no effect",
    ),
    "text_field": (["data.train.1.format=text"], "data.train.1.text_field: has no effect on text"),
    "split": (
        ["data.train.0={path: a, format: text, split: x}"],
        "data.train.0.split: has no effect on text",
    ),
    "heldout source": (
        ["data.heldout={sources: [{path: x, format: parquet, document: line}]}"],
        "data.heldout.sources.0.document: has no effect on parquet",
    ),
    "positions": (["data.sequence_length=1024"], "data.sequence_length: 1024 tokens exceed the preset's 512"),
}


@pytest.mark.parametrize("case", WARNINGS)
def test_a_setting_without_effect_is_named(case, write):
    flags, message = WARNINGS[case]
    warnings = resolve(load_recipe(write(), flags).recipe, backend="cpu").warnings
    assert len(warnings) == 1
    assert warnings[0].startswith(message)


def test_a_sound_recipe_has_no_warnings(write):
    flags = ["evaluation.every=5 steps", "checkpoint.every=5 steps", "checkpoint.keep_best=true"]
    assert resolve(load_recipe(write(), flags).recipe, backend="cpu").warnings == ()


def test_resolving_twice_changes_nothing(write):
    once = resolve(load_recipe(write()).recipe, backend="cpu")
    assert resolve(once.recipe, backend="cuda").recipe == once.recipe


def test_absolute_paths_find_the_same_files_from_anywhere(write, tmp_path):
    flags = ["data.heldout={sources: [{path: c.txt}]}", "data.train.0={hub: a/b}"]
    recipe = load_recipe(write(), flags).recipe
    moved = with_absolute_paths(recipe, tmp_path)
    assert [source.path for source in moved.data.train] == [None, str(tmp_path / "b.jsonl")]
    assert moved.data.heldout.sources[0].path == str(tmp_path / "c.txt")
    assert moved.data.tokenizer.folder == str(tmp_path / "words")
    assert (moved.runs, moved.model, moved.data.train[0].hub) == (recipe.runs, recipe.model, "a/b")
    assert with_absolute_paths(moved, tmp_path / "elsewhere") == moved


# A text of any kind, above all such as YAML could take for something else.
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    st.sampled_from(
        [
            "1e-4",
            "no",
            "null",
            "~x",
            "0x1F",
            "true",
            "- a",
            "a: b",
            "#c",
            "'",
            "<<",
            " x ",
            "\n",
            "1_0",
            "=",
            "0o7",
            "a\x85b",
            "\u2028",
            "\r",
        ]
    ),
)
DURATIONS = st.builds("{} {}".format, st.integers(1, 10**9), st.sampled_from(["steps", "tokens", "epochs"]))
SOURCES = st.one_of(
    st.fixed_dictionaries({"path": TEXTS}, optional={"text_field": TEXTS, "document": st.just("line")}),
    st.fixed_dictionaries({"hub": TEXTS}, optional={"name": TEXTS, "revision": TEXTS, "split": TEXTS}),
)
RATES = st.floats(1e-12, 1e6)
RECIPES = st.fixed_dictionaries(
    {
        "kitae": st.just(1),
        "name": st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,20}\Z"),
        "model": st.one_of(
            st.fixed_dictionaries({"folder": TEXTS}),
            st.fixed_dictionaries({"hub": TEXTS, "revision": TEXTS}),
            st.just({"named": "smollm2-135m"}),
        ),
        "data": st.fixed_dictionaries(
            {"train": st.lists(SOURCES, min_size=1, max_size=3)},
            optional={
                "heldout": st.one_of(
                    st.fixed_dictionaries({"fraction": st.floats(1e-6, 0.999)}),
                    st.fixed_dictionaries({"sources": st.lists(SOURCES, min_size=1, max_size=2)}),
                ),
                "document_mask": st.booleans(),
            },
        ),
        "training": st.fixed_dictionaries(
            {"duration": DURATIONS}, optional={"global_batch_size": st.integers(1, 4096)}
        ),
    },
    optional={
        "seed": st.integers(0, 2**63 - 1),
        "optimizer": st.fixed_dictionaries(
            {},
            optional={"learning_rate": RATES, "max_grad_norm": st.none() | RATES, "betas": st.just([0, 0.5])},
        ),
        "checkpoint": st.fixed_dictionaries({"every": DURATIONS | st.just("never")}),
        "proof": st.fixed_dictionaries({"prompts": st.lists(TEXTS, min_size=1, max_size=3)}),
        "sample": st.fixed_dictionaries({"prompt": TEXTS}),
    },
)


@settings(deadline=None, max_examples=120)
@given(values=RECIPES, backend=st.sampled_from(["cpu", "cuda"]))
def test_what_is_written_loads_to_the_same_recipe(values, backend, tmp_path_factory):
    resolved = resolve(Recipe.model_validate(values), backend=backend).recipe
    path = tmp_path_factory.getbasetemp() / "round.yaml"
    path.write_text(dump_resolved(resolved, header="made by a test\nof the round trip"), encoding="utf-8")
    assert path.read_text(encoding="utf-8").startswith("# made by a test\n# of the round trip\nkitae: 1\n")
    assert load_recipe(path).recipe == resolved
    assert resolve(load_recipe(path).recipe, backend=backend).recipe == resolved
