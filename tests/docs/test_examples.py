"""The page of examples: every recipe stands there, with what its plan says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kitae.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/examples.md").read_text("utf-8")
ROWS = {
    match[1]: match[0]
    for match in re.finditer(r"^\| \[([\w.-]+)\]\(\.\./recipes/\1\.yaml\).*$", PAGE, re.MULTILINE)
}
LARGE = [name for name, row in ROWS.items() if " x " in row]


def test_every_recipe_and_every_cluster_has_a_place():
    assert set(ROWS) == {path.stem for path in (ROOT / "recipes").glob("*.yaml")}
    for path in (ROOT / "recipes/clusters").glob("*.yaml"):
        if not path.name.endswith(".pcluster.yaml"):
            assert f"../recipes/clusters/{path.name}" in PAGE


@pytest.mark.parametrize("name", LARGE)
def test_the_numbers_are_the_plans(name: str, capsys: pytest.CaptureFixture):
    """Share of memory, the interval of the training, and money, as the plan's own sentence has them."""
    _, machines, memory, training, usd = [cell.strip() for cell in ROWS[name].strip("|").split(" | ")]
    nodes, _, machine = machines.partition(" x ")
    words = ["plan", str(ROOT / f"recipes/{name}.yaml"), "--instance", machine, "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["machine"]["nodes"] == int(nodes)
    paid = "its price is unknown" if usd == "unknown" else f"about ${usd}"
    assert found["sentence"].startswith(
        f"fits: {memory} of the memory on {machines}; {training} of training; {paid}"
    )


def test_there_are_the_procedures_nine():
    assert len(LARGE) == 9 + 1
