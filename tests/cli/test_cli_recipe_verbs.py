import json

import pytest

from kitae.cli import recipe_verbs
from kitae.cli.main import main
from kitae.recipe.reference import json_schema

RECIPE = """\
kitae: 1
name: first
model:
  preset: llama-tiny
data:
  tokenizer: {folder: words}
  train:
    - path: a.txt
training:
  duration: 20 steps
checkpoint:
  keep_best: true
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "first.yaml"
    path.write_text(RECIPE)
    return path


def test_explain_in_plain_lines(path, capsys):
    assert (
        main(
            [
                "explain",
                str(path),
                "--backend",
                "cpu",
                "--set",
                "seed=3",
                "--set",
                "data.sequence_length=2048",
            ]
        )
        == 0
    )
    output = capsys.readouterr()
    lines = {line.split()[0]: line.split() for line in output.out.splitlines()}
    assert lines["seed"] == ["seed", "3", "--set"]
    assert lines["training.duration"] == ["training.duration", '"20', 'steps"', "first.yaml:10"]
    assert lines["model.shape.hidden_size"] == ["model.shape.hidden_size", "64", "preset", "llama-tiny"]
    assert lines["training.micro_batch_size"][:4] == ["training.micro_batch_size", "4", "default", "auto:"]
    assert "\x1b" not in output.out
    assert f"warning: {path}: checkpoint.keep_best: has no effect without data.heldout" in output.err


def test_explain_as_json(path, capsys):
    assert main(["explain", str(path), "--backend", "cuda", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    rows = {row["path"]: row for row in told["values"]}
    assert rows["training.precision"]["value"] == "bf16"
    assert rows["training.precision"]["origin"] == "default"
    assert rows["training.duration"] == {
        "path": "training.duration",
        "value": "20 steps",
        "origin": "first.yaml:10",
        "reason": "",
    }
    assert told["warnings"][0].startswith("checkpoint.keep_best")


def test_explain_on_a_terminal_is_a_table(path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(recipe_verbs.sys.stdout, "isatty", lambda: True, raising=False)
    assert main(["explain", str(path), "--backend", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["value", "of", "is", "from", "because"]
    assert any(line.split()[:3] == ["optimizer.eps", "1e-08", "default"] for line in lines)


def test_explain_takes_the_backend_of_this_machine(path, capsys):
    pytest.importorskip("torch")
    from kitae.backend.table import select

    assert main(["explain", str(path), "--json"]) == 0
    rows = {row["path"]: row for row in json.loads(capsys.readouterr().out)["values"]}
    assert rows["training.precision"]["reason"].startswith(f"auto: {select().name}: ")


def test_explain_refuses_what_it_does_not_know(path, capsys):
    assert main(["explain", str(path), "--backend", "cpuu"]) == 2
    assert "did you mean cpu" in capsys.readouterr().err
    assert main(["explain", str(path), "--set", "sed=3"]) == 2
    assert capsys.readouterr().err == "error: --set sed=3: sed: unknown key; did you mean seed?\n"


def test_schema_is_json(capsys):
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()
