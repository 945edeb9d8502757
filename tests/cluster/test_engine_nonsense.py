"""An environment whose Python is none, or another: one message, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from kitae.cluster.pcluster import Engine
from kitae.errors import ClusterError

CONFIG = {"Region": "us-west-2"}


def engine(folder: Path, says: str) -> Engine:
    """One whose Python prints that, whatever it is asked."""
    python = folder / "bin/python"
    python.parent.mkdir(parents=True)
    (folder / "answer").write_text(says)
    python.write_text(f'#!/bin/sh\ncat > /dev/null\ncat "{folder}/answer"\n')
    python.chmod(0o755)
    return Engine(folder)


@pytest.mark.parametrize("says", ["", "nonsense", "[]", "{}", '{"new": 1}', "null"])
def test_policies_of_an_update_that_are_none(tmp_path: Path, says: str):
    with pytest.raises(ClusterError, match="does not answer as a Python with ParallelCluster does"):
        engine(tmp_path, says).update_rows("mine", CONFIG, {"new": CONFIG})


@pytest.mark.parametrize("says", ["", "nonsense", "{}", "1"])
def test_problems_of_a_schema_that_are_none(tmp_path: Path, says: str):
    with pytest.raises(ClusterError, match="KITAE_PCLUSTER names it, name another"):
        engine(tmp_path, says).schema_problems(CONFIG, "mine")


def test_what_it_does_answer_is_taken(tmp_path: Path):
    assert engine(tmp_path / "a", '["Region: unknown"]').schema_problems(CONFIG, "mine") == [
        "Region: unknown"
    ]
    rows = engine(tmp_path / "b", '{"new": []}').update_rows("mine", CONFIG, {"new": CONFIG})
    assert rows == {"new": []}
