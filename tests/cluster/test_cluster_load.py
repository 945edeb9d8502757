"""What is no cluster file is said so."""

from __future__ import annotations

import pytest
from cluster_case import GOOD, loaded, write_cluster

from kitae.cluster.load import load_cluster
from kitae.errors import RecipeError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "begins with 'kitae_cluster: 1'"),
        ("- a\n", "begins with 'kitae_cluster: 1'"),
        ("kitae: 1\nname: x\n", "this is a recipe"),
        ("kitae_cluster: 2\n", "install a newer kitae"),
        ("kitae_cluster: yes\n", "begins with"),
        ("name: x\n", "begins with"),
        ("a: [\n", "not valid YAML"),
    ],
)
def test_a_file_that_is_none(text, words, tmp_path):
    with pytest.raises(RecipeError, match=r"cluster\.yaml:") as error:
        load_cluster(write_cluster(tmp_path, text))
    assert words in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(RecipeError, match="kitae cluster init"):
        load_cluster(tmp_path / "none.yaml")


def test_lines_are_those_of_the_file_and_flags_replace(tmp_path):
    found = loaded(tmp_path, "queues.0.max=2")
    assert found.file.queues[0].max == 2
    assert found.place(("queues", 0, "max")) == "--set queues.0.max=2"
    assert found.place(("limits", "until")).endswith("cluster.yaml:15")
    assert GOOD.splitlines()[14] == "  until: 12 hours"
    assert found.line(("limits", "idle_stop")) == 14


def test_min_above_max_is_told_at_min(tmp_path):
    with pytest.raises(RecipeError, match=r"queues\.0\.min: 5 is more than max \(4\)"):
        loaded(tmp_path, "queues.0.min=5")


def test_machines_are_counted_by_type(tmp_path):
    more = "  - {name: b, instance: trn1.32xlarge, max: 3}\nfsx:\n"
    assert loaded(tmp_path, text=GOOD.replace("fsx:\n", more)).file.most == {"trn1.32xlarge": 7}
