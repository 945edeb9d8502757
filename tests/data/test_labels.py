import json

import pytest

from kitae.data.labels import LabelRule, label_text, record_fields, second_text, sorted_labels
from kitae.errors import DataError
from kitae.recipe.labels import LabelsConfig
from kitae.recipe.sources import DataConfig


def rule(**values):
    return LabelRule(LabelsConfig.model_validate_json(json.dumps(values), strict=True))


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (1, "1"),
        (1.0, "1"),
        ("1", "1"),
        ("1.0", "1"),
        (" 5 ", "5"),
        (4.5, "4.5"),
        (-1.0, "-1"),
        (True, "true"),
        ("positive", "positive"),
        ("01", "01"),
        (None, None),
        ("", None),
        (float("nan"), None),
    ],
)
def test_a_label_as_text(raw, text):
    assert label_text(raw) == text


@pytest.mark.parametrize("raw", [b"\xff", [1], {"a": 1}])
def test_what_is_no_label(raw):
    with pytest.raises(ValueError, match=r"is not valid UTF-8|which is no label"):
        label_text(raw)


def test_a_second_text_has_to_be_one():
    assert second_text("b") == "b"
    for raw in (None, 3):
        with pytest.raises(ValueError, match=r"is null where a text is needed|is not a text"):
            second_text(raw)


def test_the_fields_that_are_read():
    plain = DataConfig.model_validate({"train": [{"path": "x"}]})
    assert record_fields(plain) == ()
    labels = {"field": "stars", "text_pair_field": "reply"}
    config = DataConfig.model_validate({"train": [{"path": "x"}], "labels": labels})
    assert [(field.name, field.option) for field in record_fields(config)] == [
        ("stars", "data.labels.field"),
        ("reply", "data.labels.text_pair_field"),
    ]


def test_labels_are_sorted_by_value_when_all_are_numbers():
    assert sorted_labels(["10", "9", "-1", "2.5"]) == ["-1", "2.5", "9", "10"]
    assert sorted_labels(["10", "9", "a"]) == ["10", "9", "a"]


def test_the_rule_of_the_recipe():
    stars = rule(values={"1": 0, "2": 0, "4": 1, "5": 1}, names=["negative", "positive"])
    assert [stars.keeps(label) for label in ("1", "3", None, "5")] == [True, False, False, True]
    assert [stars.number(label) for label in ("1", "2", "4", "5")] == [0, 0, 1, 1]
    names, class_of = stars.settle()
    assert (names, class_of.tolist()) == (["negative", "positive"], [0, 1])


def test_labels_as_they_are():
    plain = rule()
    assert [plain.number(label) for label in ("10", "9", "10", "2")] == [0, 1, 0, 2]
    assert plain.keeps(None) is False
    names, class_of = plain.settle()
    assert names == ["2", "9", "10"]
    assert class_of.tolist() == [2, 1, 0]
    named = rule(names=["low", "high"])
    assert [named.number(label) for label in ("b", "a")] == [0, 1]
    assert named.settle()[0] == ["low", "high"]
    assert named.settle()[1].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        ([], None, "holds nothing; two classes are needed"),
        (["a"], None, "holds only 'a'; two classes are needed"),
        (["a", "b", "c"], ["x", "y"], r"2 names for 3 values \('a', 'b', 'c'\)"),
    ],
)
def test_labels_that_make_no_classifier(labels, names, message):
    plain = rule(names=names)
    for label in labels:
        plain.number(label)
    with pytest.raises(DataError, match=message):
        plain.settle()


def test_a_field_of_texts_is_no_label():
    plain = rule(field="body")
    for number in range(1000):
        plain.number(f"text {number}")
    with pytest.raises(DataError, match=r"'body' has more than 1000 different values, such as 'text 0'"):
        plain.number("text 1000")


def test_when_no_text_has_a_label_that_counts():
    stars = rule(field="stars", values={"1": 0, "5": 1})
    stars.dropped.update(["3", "3", "(none)"])
    stars.check_any(4)
    with pytest.raises(
        DataError, match=r"no text has one of '1', '5'; the field 'stars' holds '3' \(2\), '\(none\)'"
    ):
        stars.check_any(0)
