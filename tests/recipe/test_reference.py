import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from kitae.recipe.fields import Wanted, all_fields, at
from kitae.recipe.reference import json_schema, reference_markdown

ROOT = Path(__file__).parents[2]


def test_the_page_in_docs_is_current():
    page = (ROOT / "docs" / "recipe.md").read_text(encoding="utf-8")
    assert page == reference_markdown(), "run `make docs`"


def test_the_page_has_every_field_and_name():
    page = reference_markdown()
    for path, info in all_fields():
        assert f"| `{path.rpartition('.')[2]}` |" in page
        assert " ".join(info.description.split()).split("|")[0].split("<")[0] in page
    assert "| `llama3.1-8b` |" in page
    assert "dequantised from Q4_1" in page
    assert "| `warmup` | a duration such as 200 steps, 1.5M tokens or 3 epochs | `0 steps` |" in page


def test_every_field_is_described():
    assert [path for path, info in all_fields() if not info.description] == []


def test_every_property_of_the_schema_is_described_and_closed():
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    for name, section in {"Recipe": schema, **schema["$defs"]}.items():
        assert section["additionalProperties"] is False, name
        for key, value in section["properties"].items():
            assert value.get("description"), f"{name}.{key}"
    assert schema["required"] == ["kitae", "name", "model", "data", "training"]
    assert json.loads(json.dumps(schema)) == schema


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda path: path.name)
def test_the_schema_accepts_the_shipped_recipes(path):
    validator = jsonschema.Draft202012Validator(json_schema())
    recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
    validator.validate(recipe)
    assert not validator.is_valid({**recipe, "unknown": 1})


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (("seed",), "a whole number of at least 0 and below 9223372036854775808"),
        (("training", "micro_batch_size"), "a whole number above 0, or auto"),
        (("evaluation", "every"), "a duration such as 200 steps, 1.5M tokens or 3 epochs, or never"),
        (("data", "train", 4, "document"), "one of file, line, paragraph"),
        (("data", "on_bad_line"), "stop or skip"),
        (("optimizer", "betas", 1), "a number of at least 0 and below 1"),
        (
            ("data", "tokenizer"),
            "a mapping with keys out of folder, hub, revision, named, dictionary, or auto",
        ),
        (("proof", "prompts"), "a non-empty list, each entry non-empty text"),
    ],
)
def test_what_a_field_wants_in_words(path, words):
    assert str(at(path)) == words


def test_places_that_do_not_exist():
    assert at(("seed", "x")) is None
    assert at(("data", "train", "path", "y")) is None
    assert str(Wanted(bool | None)) == "true or false, or null"
