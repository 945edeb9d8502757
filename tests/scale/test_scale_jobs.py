"""Measurements as jobs, on a scheduler that answers what the test says."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from job_case import recipe_values

from kitae.errors import ClusterError, StoppedError
from kitae.launch.slurm.commands import Slurm
from kitae.scale import jobs
from kitae.scale.jobs import Queue
from kitae.scale.recipes import Wanted
from kitae.scale.setup import BASE, MEASURED, Order, Setup, failure
from kitae.stages.files import write_json


class Scheduler:
    """Runs its jobs one at each look; what happens to a script is told by the name of its folder."""

    def __init__(self) -> None:
        self.jobs: dict[int, dict[str, str]] = {}
        self.options: dict[int, list[str]] = {}
        self.refused: dict[str, str] = {}
        self.ends: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        self.cancelled: list[int] = []
        self.done: set[str] = set()

    def __call__(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        answer = {"sbatch": self.submit, "squeue": self.look, "scancel": self.cancel}[words[0]](words)
        code, out, err = answer
        return subprocess.CompletedProcess(words, code, out, err)

    def submit(self, words: Sequence[str]) -> tuple[int, str, str]:
        name = Path(words[-1]).parent.parent.name
        if name in self.refused:
            return 1, "", self.refused[name]
        number = len(self.jobs) + 1
        self.jobs[number] = {"name": name, "folder": str(Path(words[-1]).parent.parent), "state": "PENDING"}
        self.options[number] = list(words[2:-1])
        return 0, f"{number}\n", ""

    def look(self, words: Sequence[str]) -> tuple[int, str, str]:
        following = [
            one for one in self.jobs.values() if one["state"] == "PENDING" and one["name"] not in self.reasons
        ]
        if following:
            self.run(following[0])
        listed = [
            {
                "job_id": number,
                "job_state": one["state"],
                "state_reason": self.reasons.get(one["name"], "Dependency"),
            }
            for number, one in self.jobs.items()
        ]
        return 0, json.dumps({"jobs": listed}), ""

    def run(self, job: dict[str, str]) -> None:
        job["state"] = self.ends.get(job["name"], "COMPLETED")
        if job["state"] == "COMPLETED" and job["name"] != BASE:
            order = Order.read(Path(job["folder"]))
            write_json(Path(job["folder"]) / MEASURED, order.as_json())
            self.done.add(job["name"])

    def cancel(self, words: Sequence[str]) -> tuple[int, str, str]:
        for word in words[1:]:
            self.cancelled.append(int(word))
            self.jobs[int(word)]["state"] = "CANCELLED"
        return 0, "", ""


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs, "LOOK_S", 0.0)
    return Scheduler()


def queue(scheduler: Scheduler, **target: object) -> tuple[Queue, list[str]]:
    Path("recipe.yaml").write_text(yaml.safe_dump(recipe_values(target={"kind": "slurm", **target})))
    wanted = Wanted(Path("recipe.yaml"), (), "strong", "nodes", [1, 2], 2, 20, 2, 0.8)
    setup, said = Setup.of(wanted), []
    setup.begin()
    made = Queue(setup, said.append, lambda order: said.append(f"measured {order.width}"), Slurm(scheduler))
    return made, said


def test_every_job_waits_for_all_before_it(scheduler):
    made, said = queue(scheduler)
    made.fill()
    names = [one["name"] for one in scheduler.jobs.values()]
    assert names == ["base", "w0001-r1", "w0002-r1", "w0002-r2", "w0001-r2"]
    assert scheduler.options[1] == ["--kill-on-invalid-dep=yes"]
    assert scheduler.options[2][-1] == "--dependency=afterok:1"
    assert scheduler.options[5][-1] == "--dependency=afterok:1,afterany:2:3:4"
    script = (made.setup.place(next(made.setup.orders())) / "slurm/measure.sh").read_text()
    assert "#SBATCH --nodes=1\n" in script
    assert "#SBATCH --no-requeue" in script
    made.follow()
    assert said[1:] == ["measured 1", "measured 2", "measured 2", "measured 1"]
    assert not made.setup.missing()


def test_a_second_start_takes_up_what_is_in_the_queue(scheduler):
    first, _ = queue(scheduler)
    first.fill()
    scheduler.look([])  # text and weights
    scheduler.look([])  # the first measurement
    again, said = queue(scheduler)
    again.fill()
    assert list(again.jobs) == [4, 5]  # the second one ended while Slurm was asked
    assert len(scheduler.jobs) == 5
    again.follow()
    assert not again.setup.missing()
    assert not any("in the queue" in line for line in said)
    scheduler.jobs.clear()
    done, _ = queue(scheduler)
    done.fill()
    assert scheduler.jobs == {}


def test_a_width_that_slurm_refuses_is_told_and_the_rest_kept(scheduler):
    scheduler.refused = {"w0002-r1": "sbatch: error: Batch job submission failed: Node count is invalid"}
    made, said = queue(scheduler)
    made.fill()
    assert [one["name"] for one in scheduler.jobs.values()] == ["base", "w0001-r1", "w0001-r2"]
    assert "2 nodes: refused, and left out: sbatch" in said[0]
    made.follow()
    place = made.setup.place(made.setup.missing()[0])
    assert "Node count is invalid" in failure(place)


def test_a_width_that_can_never_start_is_given_up_at_once(scheduler):
    scheduler.reasons = {"w0002-r1": "PartitionNodeLimit", "w0002-r2": "PartitionNodeLimit"}
    made, said = queue(scheduler)
    made.fill()
    made.follow()
    assert sorted(scheduler.cancelled) == [3, 4]
    assert "2 nodes: failed, and left out: Slurm cannot start its job: PartitionNodeLimit" in said
    assert {one.width for one in made.setup.missing()} == {2}


def test_a_width_that_waits_too_long_is_given_up(scheduler):
    scheduler.reasons = {"w0002-r1": "NodeDown", "w0002-r2": "NodeDown"}
    made, said = queue(scheduler, wait_limit="0")
    made.fill()
    made.follow()
    assert "2 nodes: job 3 waits: NodeDown" in said
    assert any("waited longer than target.wait_limit (0): NodeDown" in line for line in said)
    assert sorted(scheduler.cancelled) == [3, 4]


def test_a_failed_measurement_takes_its_width_with_it(scheduler):
    scheduler.ends = {"w0002-r1": "FAILED"}
    made, said = queue(scheduler)
    made.fill()
    log = made.setup.place(made.jobs[3]) / "logs/slurm-measure.log"
    log.write_text("x\nerror: out of memory\n")
    made.follow()
    assert scheduler.cancelled == [4]
    assert any(line.startswith("2 nodes: failed, and left out: out of memory (see ") for line in said)
    scheduler.ends = {"w0002-r1": "TIMEOUT"}
    again, said = queue(scheduler)
    again.fill()
    (again.setup.place(again.setup.missing()[0]) / "logs/slurm-measure.log").unlink()
    again.follow()
    assert any("its job ended as TIMEOUT" in line for line in said)


def test_text_that_cannot_be_prepared_ends_everything(scheduler):
    scheduler.ends = {BASE: "FAILED", "w0001-r1": "CANCELLED"}
    made, _ = queue(scheduler)
    made.fill()
    (made.setup.folder / BASE / "logs/slurm-prepare.log").write_text("error: text/train.txt does not exist\n")
    with pytest.raises(ClusterError, match=r"could not be prepared: text/train\.txt does not exist"):
        made.follow()
    assert scheduler.cancelled == [3, 4, 5]


def test_detached_and_interrupted_jobs_stay_in_the_queue(scheduler, monkeypatch):
    made, _ = queue(scheduler)
    monkeypatch.setattr(jobs, "Slurm", lambda: Slurm(scheduler))
    monkeypatch.setattr(jobs.Queue, "follow", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(StoppedError, match=r"submitted; 4 jobs go on .* scancel 2 3 4 5 would end them"):
        jobs.measure_in_jobs(made.setup, print, print, True)
    with pytest.raises(StoppedError, match="not followed any more; 4 jobs go on"):
        jobs.measure_in_jobs(made.setup, print, print, False)
    assert scheduler.cancelled == []
