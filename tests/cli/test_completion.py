"""Shells complete kitae's words; asked as real shells ask, where those are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kitae.cli.completing import script

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a recipe, another YAML file, a cluster file and a run; and the command on the path."""
    (tmp_path / "mine.yaml").write_text("# text\nkitae: 1\nname: mine\n")
    (tmp_path / "misc.yaml").write_text("a: 1\n")
    (tmp_path / "nodes.yaml").write_text("kitae_cluster: 1\n")
    (tmp_path / "texts").mkdir()
    (tmp_path / "runs/first").mkdir(parents=True)
    (tmp_path / "runs/first/run.json").write_text("{}")
    command = tmp_path / "bin/kitae"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kitae.cli.main "$@"\n')
    command.chmod(0o755)
    return tmp_path


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{home / 'bin'}:{os.environ['PATH']}", "HOME": str(home)}


def asked(home: Path, words: list[str]) -> list[str]:
    """What is offered for the last of these words."""
    more = {
        "COMP_WORDS": " ".join(["kitae", *words]),
        "COMP_CWORD": str(len(words)),
        "_KITAE_COMPLETE": "complete_bash",
    }
    command = [sys.executable, "-X", "importtime", "-m", "kitae.cli.main"]
    done = subprocess.run(
        command, cwd=home, env={**environment(home), **more}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "| torch\n" not in done.stderr
    assert "transformers" not in done.stderr
    return done.stdout.split("\n")[:-1] if done.stdout else []


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["comple"], ["completion"]),
        (["run", "mi"], ["mine.yaml"]),
        (["run", "te"], ["texts/"]),
        (["run", "runs/"], ["runs/first", "runs/first/"]),
        (["explain", "mine.yaml", "--scale"], ["--scale-down"]),
        (["run", "mine.yaml", "--scale-down", ""], ["cpu"]),
        (["run", "mine.yaml", "--set", "schedule.w"], ["schedule.warmup="]),
        (["plan", "mine.yaml", "--instance", "trn2.4"], ["trn2.48xlarge"]),
        (["logs", "f"], ["first"]),
        (["cluster", "check", "no"], ["nodes.yaml"]),
        (["catalog", "show", "llama3.1"], ["llama3.1-8b"]),
        (["completion", "z"], ["zsh"]),
        (["new", "--model", "smol"], ["smollm2-135m"]),
    ],
)
def test_what_may_stand_there_is_offered(home: Path, words: list[str], offered: list[str]):
    assert asked(home, words) == offered


def test_an_own_recipe_far_away_is_found(home: Path):
    found = asked(home, ["run", f"{RECIPES}/llama"])
    assert found == sorted(str(path) for path in RECIPES.glob("llama*.yaml"))


def test_bash_completes(home: Path):
    (home / "kitae.sh").write_text(script("bash"))
    program = (
        "source kitae.sh; COMP_WORDS=(kitae run mi); COMP_CWORD=2; _kitae_completion kitae;"
        'echo "${COMPREPLY[@]}";'
        "COMP_WORDS=(kitae pl); COMP_CWORD=1; _kitae_completion kitae;"
        'echo "${COMPREPLY[@]}"; complete -p kitae'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", program], cwd=home, env=environment(home), capture_output=True, text=True
    )
    assert done.stdout.split("\n")[:3] == [
        "mine.yaml",
        "plan",
        "complete -o default -F _kitae_completion kitae",
    ]


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(home: Path):
    (home / "kitae.fish").write_text(script("fish"))
    program = "source kitae.fish; complete -C 'kitae run mi'; complete -C 'kitae pl'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", program],
        cwd=home,
        env=environment(home),
        capture_output=True,
        text=True,
    )
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["mine.yaml", "plan"], done.stderr


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes(home: Path):
    """Its script calls `_arguments` with what kitae offers; here that only prints it."""
    (home / "kitae.zsh").write_text(script("zsh"))
    program = (
        "compdef() { echo $2 }; _arguments() { echo $1 }; source kitae.zsh;"
        "words=(kitae run mi); CURRENT=3; _kitae_completion"
    )
    done = subprocess.run(
        ["zsh", "-f", "-c", program], cwd=home, env=environment(home), capture_output=True, text=True
    )
    assert done.stdout.splitlines()[0] == "kitae", done.stderr
    assert "mine.yaml" in done.stdout


def test_another_shell_is_refused(capsys: pytest.CaptureFixture):
    from kitae.cli.main import main

    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
