"""`kitae plan --search` and `--simulate`: what is proposed comes true, what is impossible is said."""

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
BERT = """\
kitae: 1
name: bert
objective: masked-lm
model: {preset: bert-large}
data:
  tokenizer: {hub: nobody/has-this}
  train: [{path: text}]
  sequence_length: 128
training: {duration: 100 steps, global_batch_size: 512, micro_batch_size: 8, precision: bf16-sr}
phases:
  - {name: short}
  - {name: long, data: {sequence_length: 512}, training: {global_batch_size: 256, duration: 20 steps}}
parallel: {keep_global_batch: false, data_parallel_size: 32}
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = tmp_path / "large.yaml"
    path.write_text(RECIPE)
    return str(path)


def answered(capsys: pytest.CaptureFixture, *words: str):
    assert main(["plan", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_what_is_proposed_is_what_the_plan_says_of_those_words(path: str, capsys: pytest.CaptureFixture):
    found = answered(capsys, path, "--search", "--instance", "trn1.32xlarge", "--nodes", "8")
    assert [one["aim"] for one in found] == ["cheapest", "fastest"]
    for one in found:
        words = [part for word in one["set"] for part in ("--set", word)]
        again = answered(capsys, path, "--instance", one["instance"], "--nodes", str(one["nodes"]), *words)
        assert again == one["plan"]
        assert again["verdict"] == "fits"
    given = answered(capsys, path, "--instance", "trn1.32xlarge", "--nodes", "8")
    assert found[1]["plan"]["train_s"] <= given["train_s"]
    assert float(found[0]["plan"]["cost"]["usd"]) <= float(given["cost"]["usd"])


def test_why_and_the_command_are_told(path: str, capsys: pytest.CaptureFixture):
    assert main(["plan", path, "--search", "--instance", "trn1.32xlarge"]) == 0
    out = capsys.readouterr().out
    for text in ("cheapest: ", "fastest: 64 x trn1.32xlarge: tp ", "bounded by matrix products: "):
        assert text in out
    assert "another parallel.tensor_parallel_size: +" in out
    assert "--nodes 64 --set parallel.tensor_parallel_size=" in out


def test_all_priced_machines_are_searched_and_a_given_price_counts(path: str, capsys: pytest.CaptureFixture):
    before = {one["instance"] for one in answered(capsys, path, "--search", "--nodes", "2")}
    cheap = answered(capsys, path, "--search", "--nodes", "2", "--price", "trn2.48xlarge=0.01")
    assert "trn2.48xlarge" not in before
    assert cheap[0]["instance"] == "trn2.48xlarge"


def test_limits_hold_for_what_is_found(path: str, capsys: pytest.CaptureFixture):
    words = (path, "--search", "--instance", "trn1.32xlarge")
    free = answered(capsys, *words)
    most = float(free[0]["plan"]["cost"]["usd"]) * 1.1
    bound = answered(capsys, *words, "--max-cost", f"{most:.2f}")
    assert float(bound[1]["plan"]["cost"]["usd"]) <= most + 0.1
    assert bound[1]["nodes"] < free[1]["nodes"]
    assert main(["plan", *words, "--max-cost", "1"]) == 2
    assert "none keeps to --max-cost and --until; the fastest may take" in capsys.readouterr().err


def test_phases_and_batches_of_each_copy_are_searched(tmp_path: Path, capsys: pytest.CaptureFixture):
    path = tmp_path / "bert.yaml"
    path.write_text(BERT)
    found = answered(capsys, str(path), "--search", "--instance", "trn1.32xlarge", "--nodes", "2")
    words = found[0]["set"]
    assert "parallel.keep_global_batch=true" in words
    assert "training.global_batch_size=16384" in words
    assert "phases.1.training.global_batch_size=8192" in words
    assert any(word.startswith("phases.1.training.micro_batch_size=") for word in words)
    tokens = 100 * 16_384 * 128 + 20 * 8_192 * 512
    assert all(one["plan"]["tokens"] == tokens for one in found)


def test_a_model_that_fits_nowhere(path: str, capsys: pytest.CaptureFixture):
    words = ["--set", "model.shape={num_layers: 200}", "--instance", "trn1.32xlarge,trn1.2xlarge"]
    assert main(["plan", path, "--search", "--nodes", "1", *words]) == 2
    assert "this fits on none of trn1.32xlarge, trn1.2xlarge, up to 1 nodes" in capsys.readouterr().err


def test_curves_of_a_recipe(path: str, capsys: pytest.CaptureFixture):
    words = (path, "--instance", "trn1.32xlarge", "--simulate", "nodes=1..1024")
    (strong,) = answered(capsys, *words, "--mtbf-hours", "1000")
    assert [one["nodes"] for one in strong["points"]] == [1 << power for power in range(11)]
    assert strong["mtbf_hours"] == 1000
    (weak,) = answered(capsys, path, *words[1:3], "--simulate", "1..1875", "--weak")
    last = weak["points"][-1]
    assert (last["nodes"], last["processes"]) == (1875, 60_000)
    assert last["usd_per_million_tokens"] > weak["points"][0]["usd_per_million_tokens"]
    assert main(["plan", *words]) == 0
    out = capsys.readouterr().out
    assert "of an update from the start" in out
    assert "strong scaling from 1 to 1024 nodes (32,768 processes): efficiency " in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--simulate", "nodes=1..4"], "--simulate: it needs --instance"),
        (["--simulate", "nodes=4", "--instance", "trn1.32xlarge"], "is not FIRST..LAST nodes"),
        (["--simulate", "8..4", "--instance", "trn1.32xlarge"], "the smaller one first"),
        (["--simulate", "1..4", "--instance", "trn1.2xlarge"], "collectives between machines need EFA"),
        (["--simulate", "2000..2000", "--instance", "trn1.32xlarge"], "cannot share"),
        (["--search", "--simulate", "1..4"], "--search and --simulate are two different plans"),
        (["--weak"], "--weak: it has no effect here; it is for --simulate"),
        (["--search", "--mtbf-hours", "9"], "--mtbf-hours: it has no effect here; take it, or --search, out"),
        (["--simulate", "1..4", "--until", "2099-01-01"], "--until: it has no effect here"),
        (["--mtbf-hours", "9"], "--mtbf-hours: it needs --instance"),
        (
            ["--search", "--instance", "trn1.2xlarge"],
            "none of trn1.2xlarge, however it is cut; take another inst",
        ),
        (["--search", "--instance", "r6a.12xlarge"], "it has no accelerator"),
        (["--search", "--set", "training.duration=2 epochs"], "the length is unknown"),
    ],
)
def test_what_cannot_be_is_said(words: list[str], message: str, path: str, capsys: pytest.CaptureFixture):
    assert main(["plan", path, *words]) == 2
    assert message in capsys.readouterr().err


def test_searching_imports_no_torch(path: str):
    code = "import sys; from kitae.cli.main import main; code = main(sys.argv[1:]); "
    code += "sys.exit(code or 3 * ('torch' in sys.modules or 'transformers' in sys.modules))"
    words = ["plan", path, "--search", "--instance", "trn1.32xlarge"]
    assert subprocess.run([sys.executable, "-c", code, *words], capture_output=True).returncode == 0
