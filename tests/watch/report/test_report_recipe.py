"""Recipes in a report: what differs from the defaults, and between runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from reported_runs import recipe_values, write_reported

from kitae.watch.report.blocks import Table, Words
from kitae.watch.report.conceal import HIDDEN
from kitae.watch.report.contents import report_of
from kitae.watch.report.html import page
from kitae.watch.report.recipe_section import default_of, differences, leaves, recipe
from kitae.watch.report.run_view import RunView


def view(path: Path, **values: object) -> RunView:
    return RunView(write_reported(path, recipe__yaml=recipe_values(**values)), jobs={})


def test_values_at_the_ends_of_nested_ones():
    found = leaves({"a": {"b": 1, "c": []}, "d": [{"e": 2}, {"e": [3, 4]}]})
    assert found == {"a.b": 1, "a.c": [], "d.0.e": 2, "d.1.e": [3, 4]}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("seed", "0"),
        ("optimizer.learning_rate", "0.0003"),
        ("data.train.0.document", "file"),
        ("training.precision", "auto"),
        ("schedule.warmup", "0 steps"),
        ("sample.prompt", "<object"),
        ("nonsense.a", "<object"),
    ],
)
def test_defaults_by_path(path: str, expected: str):
    assert str(default_of(path)).startswith(expected)


def test_what_differs_from_the_defaults(tmp_path: Path):
    given, chosen, _ = recipe(view(tmp_path, seed=0, sample={"prompt": "a"}, nonsense={"a": 1}))
    assert isinstance(given, Table)
    rows = {row[0]: row[1:] for row in given.rows}
    assert rows["optimizer.learning_rate"] == ("0.001", "0.0003")
    assert rows["model.named"] == ("smollm2-135m", "null")
    assert rows["training.duration"] == ("8 steps", "none: it must be given")
    assert rows["nonsense.a"] == ("1", "this kitae does not know the key")
    assert not {"seed", "name", "kitae", "optimizer.name", "objective"} & set(rows)
    assert isinstance(chosen, Table)
    assert chosen.rows == (("training.precision", "fp32"),)


def test_values_of_secret_keys_are_hidden(tmp_path: Path):
    alarms = {"webhook": "https://example.org/a/b"}
    found = view(tmp_path, watch={"alarms": alarms})
    given, *_ = recipe(found)
    assert ("watch.alarms.webhook", HIDDEN, "null") in given.rows
    text = page(report_of([found.path], {}))
    assert "https://example.org/‹hidden›" in text  # in the whole recipe
    assert "example.org/a" not in text


def test_where_runs_differ(tmp_path: Path):
    views = [
        view(tmp_path / "a", name="a", seed=1),
        view(tmp_path / "b", name="b", seed=2, sample={"prompt": "x"}),
    ]
    (found,) = differences(views)
    assert isinstance(found, Table)
    assert found.head == ("key", "a", "b")
    assert found.rows == (("seed", "1", "2"), ("sample.prompt", "–", "x"))
    (same,) = differences([views[0], views[0]])
    assert same == Words("The recipes are the same.")
