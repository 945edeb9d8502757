"""The fields that the manual lists are those that a run writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from job_case import kitae, write_case

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("docs")
    recipe = write_case(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("KITAE_CACHE", str(folder / "cache"))
        assert kitae("run", recipe) == 0
    return folder / "runs/tiny"


def first_names(page: str, marker: str) -> list[str]:
    """Names in the first cells of the rows of the table below `marker`; a cell may hold several."""
    text = (DOCS / page).read_text("utf-8")
    table = text[text.index(marker) :].partition("\n\n|")[2].partition("\n\n")[0]
    cells = [row.split(" | ")[0] for row in table.splitlines() if row.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def assert_listed(page: str, marker: str, written: Iterable[str]) -> None:
    assert sorted(first_names(page, marker)) == sorted(written)


@pytest.mark.parametrize("kind", ["start", "train", "evaluation"])
def test_metrics(run, kind):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    written = {name for line in lines if line["kind"] == kind for name in line}
    assert_listed("training.md", f"<!-- fields: {kind} -->", written)


def test_results(run):
    results = json.loads((run / "results.json").read_text("utf-8"))
    assert_listed("training.md", "<!-- fields: results -->", results)
    assert_listed("training.md", "<!-- fields: heldout -->", results["heldout"])


def test_proof(run):
    proof = json.loads((run / "proof.json").read_text("utf-8"))
    assert_listed("verbs/prove.md", "The result is `proof.json`", proof)


def test_card(run):
    state = json.loads((run / "run.json").read_text("utf-8"))
    card = json.loads((Path(state["stages"]["prepare"]["folder"]) / "card.json").read_text("utf-8"))
    assert {name.partition(".")[0] for name in first_names("data.md", "## The card")} == set(card)


def test_manifest_state(run):
    manifest = json.loads(next(run.glob("checkpoints/step-*/manifest.json")).read_text("utf-8"))
    text = (DOCS / "checkpoints.md").read_text("utf-8")
    state = re.search(r"^\| `state` \| (.+) \|$", text, re.M)
    assert set(re.findall(r"`(\w+)`", state[1])) == set(manifest["state"])
    assert_listed("checkpoints.md", "`manifest.json` has", set(manifest) - {"format", "version", "digest"})
