from kitae.recipe.explain import explain
from kitae.recipe.fields import all_fields
from kitae.recipe.load import load_recipe
from kitae.recipe.resolve import resolve


def rows_of(path, flags=()):
    loaded = load_recipe(path, flags)
    return {row.path: row for row in explain(loaded, resolve(loaded.recipe, backend="cpu"))}


def test_every_value_has_a_row_with_its_origin(write):
    rows = rows_of(write(), ["sample.prompt=Once", "seed=3"])
    assert (rows["seed"].value, rows["seed"].origin) == (3, "--set")
    assert (rows["optimizer.learning_rate"].value, rows["optimizer.learning_rate"].origin) == (
        1e-4,
        "recipe.yaml:17",
    )
    assert rows["optimizer.betas"].value == [0.9, 0.95]
    assert rows["training.duration"].value == "20 steps"
    assert rows["sample.max_new_tokens"].origin == "default"


PHASES = "phases=[{name: one, data: {train: [{path: c}], heldout: {sources: [{path: c}]}}}]"


def test_no_field_of_the_schema_is_left_out(write):
    rows = rows_of(write(), ["sample.prompt=Once", "data.heldout={sources: [{path: c}]}", PHASES])
    labelled = rows_of(write(), ["objective=classification", "data.labels={}"])
    masked = rows_of(write(), ["objective=masked-lm", "data.masking={}"])
    range_of_nodes = rows_of(write(), ["target.kind=slurm", "target.nodes={min: 2, max: 4}"])
    shown = {path.replace(".0.", "[].") for path in (*rows, *labelled, *masked, *range_of_nodes)}
    leaves = {
        path
        for path, _ in all_fields()
        if not any(other.startswith((f"{path}.", f"{path}[")) for other, _ in all_fields())
    }
    assert leaves <= shown


def test_an_automatic_value_says_why(write):
    rows = rows_of(write())
    assert (rows["training.micro_batch_size"].value, rows["training.micro_batch_size"].origin) == (
        8,
        "default",
    )
    assert rows["training.micro_batch_size"].reason.startswith(
        "auto: largest divisor of global_batch_size (8)"
    )
    assert rows["training.precision"].reason == "auto: cpu: bf16 pays only on CPUs with instructions for it"
    assert rows["training.global_batch_size"].reason == ""


def test_the_sizes_of_a_preset_are_shown(write):
    rows = rows_of(write(), ["model.shape.num_layers=4"])
    assert (rows["model.shape.num_layers"].value, rows["model.shape.num_layers"].origin) == (4, "--set")
    assert (rows["model.shape.hidden_size"].value, rows["model.shape.hidden_size"].origin) == (
        64,
        "preset llama-tiny",
    )
    assert rows["model.shape.vocab_size"].reason == "auto: as many rows as the tokenizer has ids"


def test_the_models_own_tokenizer_is_written_out(write, good):
    text = good.replace("preset: llama-tiny", "named: smollm2-135m").replace(":\n    folder: words", ": auto")
    row = rows_of(write(text))["data.tokenizer.named"]
    assert (row.value, row.origin, row.reason) == ("smollm2-135m", "recipe.yaml:6", "auto: the model's own")
