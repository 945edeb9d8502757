import json

import pytest
from pydantic import ValidationError

from kitae.errors import RecipeError
from kitae.recipe.fields import at
from kitae.recipe.labels import LabelsConfig
from kitae.recipe.load import load_recipe
from kitae.recipe.paths import with_absolute_paths
from kitae.recipe.sources import TokenizerConfig


def labels(**values):
    return LabelsConfig.model_validate_json(json.dumps(values), strict=True)


def test_values_of_the_recipe_become_classes(write):
    """As the issue writes it: numbers as keys, the rest dropped."""
    flags = ["objective=classification", "data.labels={field: stars, values: {1: 0, 2: 0, 4: 1, 5: 1}}"]
    config = load_recipe(write(), flags).recipe.data.labels
    assert config is not None
    assert config.field == "stars"
    assert config.classes == {"1": 0, "2": 0, "4": 1, "5": 1}
    assert config.class_names == ["LABEL_0", "LABEL_1"]


@pytest.mark.parametrize(
    ("values", "names", "classes", "class_names"),
    [
        (None, None, None, None),
        (None, ["a", "b"], None, ["a", "b"]),
        ({"1.0": 1, "2": 0}, ["a", "b"], {"1": 1, "2": 0}, ["a", "b"]),
        ({"bad": "negative", "good": "positive"}, None, {"bad": 0, "good": 1}, ["negative", "positive"]),
        ({"good": "positive", "bad": "negative"}, None, {"good": 1, "bad": 0}, ["negative", "positive"]),
        ({"x": "b", "y": "a", "z": "b"}, ["a", "b"], {"x": 1, "y": 0, "z": 1}, ["a", "b"]),
        ({"x": "b", "y": "c"}, ["a", "b", "c"], {"x": 1, "y": 2}, ["a", "b", "c"]),
    ],
)
def test_classes_and_their_names(values, names, classes, class_names):
    config = labels(values=values, names=names)
    assert config.classes == classes
    assert config.class_names == class_names


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"values": {}}, "there is only one class"),
        ({"values": {"1": 0, "5": 0}}, "there is only one class"),
        ({"values": {"1": 0, "5": 2}}, "the classes are 0, 2 where 0 to 2 are needed"),
        ({"values": {"1": 0, "5": 1}, "names": ["a", "b", "c"]}, "0 to 2, one for each of 3 names"),
        ({"values": {"1": 0, "5": "good"}}, "some classes are numbers and some are names"),
        ({"values": {"1": 0, "1.0": 1}}, "1 is given twice"),
        ({"values": {"1": "a", "2": "c"}, "names": ["a", "b"]}, "c is none of names"),
        ({"names": ["a", "a"]}, "a name is given twice"),
        ({"names": ["a"]}, "at least 2 items"),
        ({"field": ""}, "at least 1 character"),
        ({"values": {"1": True}}, "valid integer"),
    ],
)
def test_what_makes_no_classifier(values, message):
    with pytest.raises(ValidationError, match=message):
        labels(**values)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("data.labels={values: {1: 0.5}}", r"data\.labels\.values\.1: found 0\.5 .*whole number, or text"),
        (
            "data.labels={values: [1]}",
            r"data\.labels\.values: found a list of 1; write a mapping, each value",
        ),
        ("data.labels={feild: x}", r"data\.labels\.feild: unknown key; did you mean data\.labels\.field"),
    ],
)
def test_a_wrong_value_is_told_with_its_place(write, flag, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe(write(), ["objective=classification", flag])


def test_a_value_below_a_mapping_can_be_set(write):
    flags = ["objective=classification", "data.labels={values: {1: 0, 5: 1}}", "data.labels.values.4=1"]
    config = load_recipe(write(), flags).recipe.data.labels
    assert config is not None
    assert config.values == {"1": 0, "5": 1, "4": 1}
    assert str(at(("data", "labels", "values", "4"))) == "a whole number, or text"


def test_a_dictionary_is_a_name_or_a_folder(tmp_path):
    named = TokenizerConfig.model_validate({"folder": "t", "dictionary": "ipadic"})
    assert with_absolute_paths(named, tmp_path).dictionary == "ipadic"
    folder = TokenizerConfig.model_validate({"folder": "t", "dictionary": "my dic"})
    assert with_absolute_paths(folder, tmp_path).dictionary == str(tmp_path / "my dic")
