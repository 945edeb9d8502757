"""`kitae plan` for machines of the catalogue: what it prints, refuses and does not import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kitae.cli.main import main

RECIPE = """\
kitae: 1
name: large
model: {preset: llama3.1-8b}
data:
  tokenizer: {hub: nobody/has-this}
  train: [{path: text}]
  sequence_length: 8192
  document_mask: false
training: {duration: 100 steps, global_batch_size: 1024, micro_batch_size: 1}
parallel: {tensor_parallel_size: 32, sequence_parallel: true}
"""
FOUR = ["--instance", "trn1.32xlarge", "--nodes", "4"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = tmp_path / "large.yaml"
    path.write_text(RECIPE)
    return str(path)


def planned(capsys: pytest.CaptureFixture, *words: str) -> dict:
    assert main(["plan", *words, "--json"]) == 0
    found: dict = json.loads(capsys.readouterr().out)
    return found


def test_8b_fits_four_nodes_and_costs_what_the_hours_say(path: str, capsys: pytest.CaptureFixture):
    found = planned(capsys, path, "--instance", "trn1.32xlarge", "--nodes", "4")
    assert found["verdict"] == "fits"
    assert (found["machine"]["nodes"], found["steps"]) == (4, 100)
    assert found["tokens"] == 100 * 1024 * 8192
    hours, cost = found["hours"], found["cost"]
    assert hours["compile"] == pytest.approx(1 / 6)
    by_hand = sum(round(4 * 21.50 * round(length * 3600) / 3600, 2) for length in hours.values())
    assert float(cost["usd"]) == pytest.approx(by_hand, abs=0.001)
    low, high = found["phases"][0]["step_s_interval"]
    assert low < found["phases"][0]["step_s"] < high
    assert any("128,256 rows of the vocabulary" in line for line in found["assumptions"])


def test_8b_does_not_fit_the_small_machine_and_says_what_would(path: str, capsys: pytest.CaptureFixture):
    changes = ["--set", "parallel.tensor_parallel_size=1", "--set", "parallel.sequence_parallel=false"]
    assert main(["plan", path, "--instance", "trn1.2xlarge", "--nodes", "1", *changes]) == 0
    out = capsys.readouterr().out
    assert "does not fit" in out.splitlines()[-1]
    assert "would fit: --set parallel.tensor_parallel_size=32" in out  # of 16 there is no ring
    assert "--instance trn1.32xlarge" in out


def test_probabilities_that_are_written_out_are_not_called_dropout(path: str, capsys: pytest.CaptureFixture):
    assert main(["plan", path, *FOUR, "--set", "data.document_mask=true"]) == 0
    out = capsys.readouterr().out
    assert "  probabilities" in out
    assert "dropout" not in out


def test_what_links_do_not_join_is_said(path: str, capsys: pytest.CaptureFixture):
    for size, said in ((8, False), (16, True), (32, False)):
        found = planned(capsys, path, *FOUR, "--set", f"parallel.tensor_parallel_size={size}")
        assert any("has rings of 2, 8 and 32" in line for line in found["assumptions"]) is said


def test_the_tables_have_the_lines_of_the_bill(path: str, capsys: pytest.CaptureFixture):
    words = ["--head", "r6a.12xlarge", "--price", "r6a.12xlarge=2.7216", "--fsx", "1200", "--nat"]
    assert main(["plan", path, "--instance", "trn1.32xlarge", "--nodes", "4", *words]) == 0
    out = capsys.readouterr().out
    for text in ("at its fullest", "tensor_parallel", "fsx-scratch", "nat ", "a million tokens", "assumed:"):
        assert text in out
    assert out.splitlines()[-1].startswith("fits: ")


def test_machines_are_compared_with_time_counted(path: str, capsys: pytest.CaptureFixture):
    entries = "p4de.24xlarge:2,trn1.32xlarge:4,trn2.48xlarge:4,trn1.32xlarge:3"
    assert main(["plan", path, "--compare", entries]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if " x " in line]
    assert [row.split()[:4] for row in rows[:2]] == [
        ["2", "x", "p4de.24xlarge", "8"],
        ["4", "x", "trn1.32xlarge", "32"],
    ]
    assert "unknown" in rows[2]
    assert "cannot run" in rows[3]
    assert any("training.global_batch_size (1024)" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--instance", "trn1.32xlarge", "--nodes", "4", "--max-cost", "10"], "which is more than $10"),
        (["--instance", "trn2.48xlarge", "--nodes", "4", "--max-cost", "10"], "a price is unknown"),
        (["--instance", "trn1.2xlarge"], "collectives between machines need EFA"),
        (["--instance", "r6a.12xlarge"], "it has no accelerator"),
        (["--instance", "trn1.32xlarge", "--nodes", "4", "--until", "2026-01-01T00:00Z"], "that has passed"),
        (["--instance", "trn1.32xlarge", "--until", "tomorrow"], "is no time such as"),
        (
            [*FOUR, "--until", "2099-01-01T00:00Z", "--set", "target.time_limit=40000-00:00:00"],
            "target.time_limit (40000-00:00:00) goes past 2099-01-01",
        ),
        (["--nodes", "4"], "--nodes: it needs --instance"),
        (["--max-cost", "4"], "--max-cost: it needs --instance"),
        (["--instance", "trn9"], "no instance is called 'trn9'"),
        (["--compare", "trn1.32xlarge"], "is not NAME:NODES"),
        (["--compare", "trn1.32xlarge:²"], "is not NAME:NODES"),
        (["--compare", "trn1.32xlarge:99999999999"], "of 1 to 65,536 nodes"),
        (
            ["--compare", "trn1.32xlarge:4", "--nodes", "4"],
            "--nodes: it has no effect here; take it, or --compare",
        ),
        ([*FOUR, "--price", "3"], "is not ITEM=USD"),
        ([*FOUR, "--price", "nat=-3"], "is not above 0"),
        ([*FOUR, "--price", "nat=1e30"], "more than $1,000,000,000"),
        ([*FOUR, "--price", "nat=cheap"], "is no number of US dollars"),
        (
            [*FOUR, "--price", "trn1.32xlarg=3"],
            "no item is called 'trn1.32xlarg'; did you mean trn1.32xlarge",
        ),
        ([*FOUR, "--fsx-type", "nat", "--fsx", "9"], "no file system is called 'nat'"),
        ([*FOUR[:3], "99999999999"], "--nodes"),
        (["--fsx", "1200"], "--fsx: it needs --instance"),
        ([*FOUR, "--simulate", "1..4"], "--nodes: it has no effect here; take it, or --simulate, out"),
        ([*FOUR[:2], "--simulate", "1..4", "--nat"], "--nat: it has no effect here"),
        (["--accuracy", "--nodes", "4"], "--nodes: it has no effect here; take it, or --accuracy, out"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], message: str, path: str, capsys: pytest.CaptureFixture):
    assert main(["plan", path, *words]) == 2
    assert message in capsys.readouterr().err


def test_a_plan_imports_no_torch(path: str):
    code = "import sys; from kitae.cli.main import main; code = main(sys.argv[1:]); "
    code += "sys.exit(code or 3 * ('torch' in sys.modules or 'transformers' in sys.modules))"
    words = ["plan", path, "--instance", "trn1.32xlarge", "--nodes", "4"]
    assert subprocess.run([sys.executable, "-c", code, *words], capture_output=True).returncode == 0
