"""What `kitae precompile --trace-only` says to people, and what it refuses."""

from importlib.util import find_spec

import pytest

from kitae.cli import trace_tables
from kitae.cli.main import main
from kitae.cli.trace_tables import groups_in_words


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([[*range(32)], [*range(32, 64)]], "2 of 32: 0-31 ..."),
        ([[0, 32, 64, 96], [1, 33, 65, 97]], "2 of 4: 0-96 by 32 ..."),
        ([[*range(128)]], "1 of 128: 0-127"),
        ([[0], [1]], "2 of 1: 0-0 ..."),
    ],
)
def test_groups(groups, words):
    assert groups_in_words(groups) == words


def phase(update, predicted):
    program = {"graph": "train/only", "key": "abcd", "uses_per_update": 1, "operations": 1200}
    return {
        "name": None,
        "programs": [{**program, "collectives": update}],
        "update": update,
        "predicted": predicted,
        "as_predicted": update == predicted,
    }


def one(count):
    return {"kind": "all_reduce", "groups": [[0, 1], [2, 3]], "bytes_in": 4096, "count": count}


def traced(monkeypatch, capsys, *phases):
    """Exit code, and the lines of what is said."""
    facts = {
        "world": {"size": 4, "tensor_parallel": 2, "data_parallel": 2, "rank": 0},
        "phases": phases,
        "note": None,
        "seconds": 9.5,
        "peak_bytes": 10**9,
        "folder": "runs/a",
    }
    monkeypatch.setattr(trace_tables, "trace_recipe", lambda *given, **options: facts)
    code, said = main(["precompile", "recipe.yaml", "--trace-only"]), capsys.readouterr()
    return code, [" ".join(line.split()) for line in (said.out + said.err).splitlines()]


def test_programs_and_what_they_exchange(monkeypatch, capsys):
    code, lines = traced(monkeypatch, capsys, phase([one(10)], [one(10)]))
    assert code == 0
    assert "train/only abcd 1 1,200 10" in lines
    assert "all_reduce 10 4,096 2 of 2: 0-1 ..." in lines
    assert "9.5 s, 1 GB of memory at most; all of it is in runs/a" in lines


def test_what_is_not_predicted_is_an_error(monkeypatch, capsys):
    code, lines = traced(monkeypatch, capsys, phase([one(10)], [one(12)]))
    assert code == 9
    assert "all_reduce of 4,096 bytes among 2 of 2: 0-1 ...: 10, predicted 12" in lines[-1]


def test_without_torch_xla_it_says_what_is_needed(tmp_path, capsys):
    pytest.importorskip("torch")
    if find_spec("torch_xla") is not None:
        pytest.skip("torch-xla is here")
    recipe = tmp_path / "a.yaml"
    recipe.write_text(
        "kitae: 1\nname: a\nmodel: {preset: llama-tiny}\ndata: {train: [{path: x}]}\n"
        "training: {duration: 1 steps}\n"
    )
    assert main(["precompile", str(recipe), "--trace-only"]) == 2
    assert "--trace-only: torch-xla is not installed" in capsys.readouterr().err
