"""How Slurm's programs are called, and what is said when they fail."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from kitae.errors import ClusterError
from kitae.launch.slurm.allocation import Allocation, starter
from kitae.launch.slurm.commands import TRIES, Slurm

SAMPLES = Path(__file__).with_name("samples")
BUSY = (1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")


class Programs:
    """Answers in turn, by what a command line begins with; the last answer stays."""

    def __init__(self, **answers: tuple[int, str, str] | list[tuple[int, str, str]]) -> None:
        self._answers = {name: one if isinstance(one, list) else [one] for name, one in answers.items()}
        self.called: list[tuple[str, ...]] = []

    def __call__(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        self.called.append(tuple(words))
        if words[0] not in self._answers:
            raise FileNotFoundError(words[0])
        answers = self._answers[words[0]]
        code, out, err = answers.pop(0) if len(answers) > 1 else answers[0]
        return subprocess.CompletedProcess(words, code, out, err)


def slurm(**answers) -> tuple[Slurm, Programs]:
    programs = Programs(**answers)
    return Slurm(programs, sleep=lambda seconds: None), programs


def test_a_missing_program_is_told_with_the_way_out():
    with pytest.raises(ClusterError, match="no program squeue here; start kitae where Slurm's programs are"):
        slurm()[0].jobs([1])


def test_a_busy_controller_is_asked_again_but_nothing_is_submitted_twice(tmp_path):
    here, programs = slurm(scontrol=[BUSY, (0, "n1\nn2\nn5\n", "")], sbatch=BUSY)
    assert here.host_names("n[1-2,5]") == ["n1", "n2", "n5"]
    with pytest.raises(ClusterError, match="Unable to contact slurm controller"):
        here.submit(tmp_path / "x.sh")
    assert [words[0] for words in programs.called] == ["scontrol", "scontrol", "sbatch"]
    here, programs = slurm(scancel=BUSY)
    with pytest.raises(ClusterError):
        here.cancel([1])
    assert len(programs.called) == TRIES


def test_a_refusal_is_told_in_slurms_words(tmp_path):
    refused = (
        1,
        "",
        "sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed",
    )
    with pytest.raises(ClusterError, match="invalid partition specified: x; sbatch: error: Batch job"):
        slurm(sbatch=refused)[0].submit(tmp_path / "x.sh")


def test_the_number_of_a_job_of_several_clusters(tmp_path):
    here, programs = slurm(sbatch=(0, "123;north\n", ""))
    assert here.submit(tmp_path / "a b.sh", ["--dependency=afterok:7"]) == 123
    assert programs.called == [("sbatch", "--parsable", "--dependency=afterok:7", str(tmp_path / "a b.sh"))]


def test_jobs_by_json_and_by_text_where_there_is_none():
    here, _ = slurm(squeue=(0, (SAMPLES / "squeue-22.05.json").read_text(), ""))
    assert {number: job.state for number, job in here.jobs([2, 7]).items()} == {2: "PENDING"}
    text = "7|RUNNING|None|n1|1|2026-11-30T19:14:16|2026-11-30T19:14:17|x\n"
    here, _ = slurm(squeue=[(1, "", "squeue: unrecognized option '--json'"), (0, text, "")])
    assert here.jobs([7])[7].state == "RUNNING"
    here, _ = slurm(squeue=(1, "", "slurm_load_jobs error: Invalid job id specified"))
    assert here.jobs([7]) == {}
    assert slurm()[0].jobs([]) == {}


def test_where_nodes_are_reached():
    lines = "NodeName=q-1 Arch=x86_64 NodeAddr=10.0.0.7 NodeHostName=q-1\nNodeName=q-2 NodeAddr=q-2.local\n"
    here, _ = slurm(scontrol=(0, lines, ""))
    assert here.addresses(["q-1", "q-2"]) == {"q-1": "10.0.0.7", "q-2": "q-2.local"}


def test_the_nodes_of_a_job_in_order():
    """T44: the list of the environment, expanded by scontrol; the first is where ranks meet."""
    here, programs = slurm(scontrol=(0, "q-dy-trn1-1\nq-dy-trn1-2\nq-dy-trn1-5\n", ""))
    environment = {
        "SLURM_JOB_ID": "12",
        "SLURM_JOB_NODELIST": "q-dy-trn1-[1-2,5]",
        "SLURM_RESTART_COUNT": "2",
    }
    found = Allocation.here(here, environment)
    assert (found.job, found.restart, found.names) == (12, 2, ("q-dy-trn1-1", "q-dy-trn1-2", "q-dy-trn1-5"))
    assert programs.called == [("scontrol", "show", "hostnames", "q-dy-trn1-[1-2,5]")]
    with pytest.raises(ClusterError, match="no job of Slurm"):
        Allocation.here(here, {"SLURM_JOB_ID": "12"})


def test_one_task_is_started_on_each_node():
    words = starter(("n1", "n3"))
    assert words[0] == "srun"
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--nodelist=n1,n3"} < set(words)
