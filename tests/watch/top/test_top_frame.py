"""One picture as plain text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from recorded_runs import BEGUN_S, attempt, write_run
from top_scenes import sample, write_training

from kitae.watch.top.frame import frame
from kitae.watch.top.scene import Scene
from kitae.watch.top.source import Past, RunSource

NOW = BEGUN_S + 605


@pytest.fixture(autouse=True)
def _no_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))


def test_a_run_is_told_whole(tmp_path: Path):
    text = frame(RunSource(write_training(tmp_path / "run"), now=lambda: NOW).look(), 100)
    heads = [line.strip("─ ") for line in text.split("\n") if line.startswith("── ")]
    assert [head.split(" ")[0].rstrip(",") for head in heads] == [
        "alarms", "loss", "learning", "gradient", "tokens/s", "64", "ranks", "checkpoints", "attempts", "log"
    ]  # fmt: skip
    assert "\x1b" not in text
    assert max(map(len, text.split("\n"))) <= 100
    assert not any(line.endswith(" ") for line in text.split("\n"))
    assert "$114.73 at the end" in text
    assert "◀ slow, 1.59 x" in text


def test_in_ascii_where_the_output_has_no_more(tmp_path: Path):
    run = write_training(tmp_path / "run")
    (run / "logs/rank-0.log").write_text("step 1\n")
    scene = RunSource(run, now=lambda: NOW).look()
    assert frame(scene, 80, "ascii").isascii()
    assert not frame(scene, 80, "UTF-8").isascii()
    assert frame(scene, 80, "no such encoding").isascii()


def test_a_run_that_has_not_begun_has_no_curves(tmp_path: Path):
    run = write_run(tmp_path / "run", [attempt(host="here")], signed=NOW)
    text = frame(RunSource(run, now=lambda: NOW).look(), 80)
    assert "no update yet" in text
    assert "no core has been sampled yet" in text
    assert "loss" not in text
    assert "rank 0 has written nothing yet" in text


def test_a_machine_has_cores_and_processes(tmp_path: Path):
    one = sample("trn1", 32)
    text = frame(Scene("trn1", NOW, nodes=Past().nodes({"trn1": one})), 100)
    assert "32 cores · 83 % busy" in text
    assert text.count("11.2G") == 32
    assert "rank 0" in text
    assert "cost" not in text


def test_without_torch_and_without_textual(tmp_path: Path):
    """What a login node has to load for one picture."""
    run = write_training(tmp_path / "run")
    check = (
        "import sys; from kitae.cli.main import main; code = main(['top', sys.argv[1], '--once']); "
        "sys.exit(code or 10 * any(name in sys.modules for name in ('torch', 'textual', 'transformers')))"
    )
    source = str(Path(__file__).parents[3] / "src")
    done = subprocess.run(
        [sys.executable, "-c", check, str(run)],
        env={"PYTHONPATH": source, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "step 300/3,000" in done.stdout
