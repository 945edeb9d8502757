"""Scripts and their chain: what a person sees with --print, and what is submitted."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kitae.cli.main import main
from kitae.errors import ClusterError
from kitae.launch.slurm import chain
from kitae.launch.slurm.chain import CHAIN, Submission, most_it_costs, recipe_file
from kitae.launch.slurm.commands import Slurm
from kitae.launch.slurm.record import read_jobs
from kitae.launch.slurm.script import script_of
from kitae.precompile.drive import Compiling
from kitae.recipe.load import load_recipe

TRAIN = next(task for _, task in CHAIN if task.trains)
TARGET = {
    "kind": "slurm",
    "nodes": {"min": 2, "max": 4},
    "partition": "compute1",
    "time_limit": "1-00:00:00",
    "gres": "neuron:16",
    "setup": ["module load neuron"],
    "extra": ["--mem=0"],
    "signal_before_s": 90,
    "price_per_node_hour": 20,
}


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe in a folder with a blank, and another one to start from."""
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "the cache"))
    monkeypatch.setattr(chain, "attend", lambda run: None)
    values = {
        "kitae": 1,
        "name": "x",
        "model": {"preset": "llama-tiny"},
        "data": {"tokenizer": {"folder": "words"}, "train": [{"path": "a.txt"}]},
        "training": {"duration": "20 steps", "global_batch_size": 8},
        "target": TARGET,
    }
    (tmp_path / "my recipes").mkdir()
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "my recipes/recipe.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    monkeypatch.chdir(tmp_path / "elsewhere")
    return path


class Queue:
    """A Slurm that takes jobs, up to one that it refuses."""

    def __init__(self, refuse: int | None = None) -> None:
        self.called: list[list[str]] = []
        self._refuse = refuse

    def __call__(self, words):
        self.called.append(list(words))
        number = sum(one[0] == "sbatch" for one in self.called)
        if words[0] == "sbatch" and number == self._refuse:
            return subprocess.CompletedProcess(words, 1, "", "sbatch: error: no")
        jobs = '{"jobs": [{"job_id": 3, "job_state": "RUNNING", "node_count": 2}]}'
        out = f"{number}\n" if words[0] == "sbatch" else jobs
        return subprocess.CompletedProcess(words, 0, out, "")


def submission(recipe: Path, queue: Queue, lines: list[str]) -> Submission:
    return Submission.of(recipe, [], lines.append, Slurm(queue))


def test_a_script_is_short_absolute_and_safe_for_blanks(recipe: Path, tmp_path: Path):
    """Row 50."""
    run, cache = tmp_path / "else where/runs/x", tmp_path / "the cache"
    text = script_of(TRAIN, run, load_recipe(recipe).recipe.target, cache)
    lines = text.splitlines()
    assert lines[0] == "#!/bin/bash"
    directives = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    assert directives == [
        "--job-name=x.train",
        "--nodes=2-4",
        "--partition=compute1",
        "--gres=neuron:16",
        "--time=1-00:00:00",
        "--exclusive",
        f'--chdir="{run}"',
        f'--output="{run}/logs/slurm-train.log"',
        "--open-mode=append",
        "--requeue",
        "--signal=B:USR1@90",
        "--mem=0",
    ]
    assert "module load neuron" in lines
    command = shlex.split(lines[-1])
    assert command == ["exec", sys.executable, "-m", "kitae.launch.slurm.batch", str(run)]
    assert f"export KITAE_CACHE='{cache}'" in lines
    assert subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True).stderr == ""
    assert len(lines) <= 20


def test_print_shows_every_script_and_leaves_nothing(recipe: Path, tmp_path: Path, capsys):
    before = sorted(tmp_path.rglob("*"))
    assert main(["run", str(recipe), "--nodes", "3", "--print"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("#!/bin/bash") == 4
    assert "#SBATCH --nodes=3\n" in shown
    assert "--dependency=afterok:<job of import>" in shown
    assert sorted(tmp_path.rglob("*")) == before


def test_graphs_are_compiled_ahead_on_as_many_nodes_as_train(recipe: Path, capsys):
    """Only where the recipe says that its nodes compile, or it is asked for."""
    words = ["train", str(recipe), "--set", "target.backend=xla", "--print"]
    assert main(words) == 0
    scripts = capsys.readouterr().out.split("==> ")[1:]
    assert [script.partition("\n")[0].rpartition("/")[2] for script in scripts] == [
        "prepare.sh",
        "import.sh",
        "precompile.sh",
        "train.sh",
    ]
    assert "#SBATCH --nodes=2-4\n" in scripts[2]
    assert "#SBATCH --no-requeue\n" in scripts[2]
    assert "--dependency=afterok:<job of precompile>" in scripts[3]
    assert main(["precompile", str(recipe), "--jobs", "4", "--retry-failed", "--print"]) == 0
    (command,) = [
        line for line in capsys.readouterr().out.splitlines() if "exec" in line and " precompile " in line
    ]
    assert Compiling.of_words(shlex.split(command)[-2:]) == Compiling(jobs=4, retry_failed=True)


def test_where_nothing_is_submitted_print_says_so(recipe: Path, capsys):
    assert main(["train", str(recipe), "--target", "local", "--print"]) == 2
    assert "with target.kind local there are none" in capsys.readouterr().err


def test_each_job_waits_for_the_one_before_it(recipe: Path, tmp_path: Path):
    queue, lines = Queue(), []
    jobs = submission(recipe, queue, lines).submit("prove")
    run = tmp_path / "elsewhere/runs/x"
    assert [(job.stage, job.number) for job in jobs] == [
        ("prepare", 1),
        ("import", 2),
        ("train", 3),
        ("prove", 4),
    ]
    assert read_jobs(run) == jobs
    submitted = [words for words in queue.called if words[0] == "sbatch"]
    assert submitted[0] == ["sbatch", "--parsable", str(run / "slurm/prepare.sh")]
    assert submitted[2][2:] == [
        "--kill-on-invalid-dep=yes",
        "--dependency=afterok:2",
        str(run / "slurm/train.sh"),
    ]
    assert "then train (job 3)" in lines[0]
    assert lines[-1] == "it costs at most $1,920.00 each time it runs (4 nodes, 24 hours)"


def test_what_is_submitted_is_found_from_anywhere_and_nothing_is_resolved(recipe: Path, tmp_path: Path):
    submission(recipe, Queue(), []).submit("train")
    run = tmp_path / "elsewhere/runs/x"
    assert recipe_file(run) == run / "submitted.yaml"
    kept = load_recipe(run / "submitted.yaml").recipe
    assert kept.data.train[0].path == str(recipe.parent / "a.txt")
    assert kept.runs == str(run.parent)
    assert (kept.training.precision, kept.parallel.data_parallel_size) == ("auto", "auto")
    assert (kept.target.least, kept.target.most) == (2, 4)
    again = Submission.of(run, ["target.nodes=2"], print)
    assert (again.run, again.recipe.target.most) == (run, 2)


def test_a_refused_job_leaves_none_behind(recipe: Path, tmp_path: Path):
    queue = Queue(refuse=3)
    with pytest.raises(ClusterError, match="sbatch: error: no"):
        submission(recipe, queue, []).submit("prove")
    assert queue.called[-1] == ["scancel", "1", "2"]
    assert read_jobs(tmp_path / "elsewhere/runs/x") == []


def test_a_run_in_the_queue_is_not_submitted_again(recipe: Path):
    queue = Queue()
    submission(recipe, queue, []).submit("prove")
    with pytest.raises(ClusterError, match=r"in the queue already \(train 3 running\)"):
        submission(recipe, queue, []).submit("prove")


def test_a_run_in_the_queue_is_not_set_aside(recipe: Path, tmp_path: Path, monkeypatch, capsys):
    queue = Queue()
    submission(recipe, queue, []).submit("prove")
    monkeypatch.setattr(chain, "Slurm", lambda: Slurm(queue))
    assert main(["run", str(recipe), "--start-over"]) == ClusterError.exit_code
    assert "in the queue already" in capsys.readouterr().err
    assert [one.name for one in (tmp_path / "elsewhere/runs").iterdir()] == ["x"]


def test_what_it_costs(recipe: Path):
    def cost(*changes: str) -> str:
        return most_it_costs(load_recipe(recipe, changes).recipe)

    assert (
        cost("target.time_limit=null") == "it costs up to $80.00 an hour (4 nodes), without a limit of time"
    )
    assert "unknown" in cost("target.price_per_node_hour=null")
