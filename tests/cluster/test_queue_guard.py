"""The head node's guard: machines that boot in a loop, or wait for others, are ended; logs replayed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from clustermgtd_logs import RECORDED, boot_loop, capacity_refusal, success

from kitae.cluster import guard_program
from kitae.cluster.guard_program import Limits, Memory, Tally, end_waits, jobs_that_wait, look, tell

LIMITS = Limits(boot_failures=5, capacity_wait_s=1200, usd={"train": "21.50"})
NOW = datetime(2026, 12, 1, 4, tzinfo=timezone.utc)


class Slurm:
    """Answers what the guard asks, and notes what it orders."""

    def __init__(self, squeue: str = "", sinfo: str = "", running: str = "") -> None:
        self.answers = {("squeue", "CF"): squeue, ("squeue", "R"): running, ("sinfo", "%N|%t"): sinfo}
        self.answers["sinfo", "%N|%R|%t"] = sinfo
        self.ordered: list[str] = []

    def __call__(self, words: Sequence[str]) -> str:
        for (program, word), answer in self.answers.items():
            if words[0] == program and word in words:
                return answer
        self.ordered.append(" ".join(words))
        return ""


def test_a_recorded_loop_is_counted_by_queue():
    """Lines of a real cluster, whose two machines fail for the fifth and sixth time."""
    tally = Tally().read_all(RECORDED)
    assert tally.failed == {"gpu": 2}
    assert (
        tally.why["gpu"]
        == "Node gpu-st-ml-2(10.0.10.102) is currently in replacement and no backing instance"
    )
    assert set(tally.launched) == {"gpu-st-ml-1", "gpu-st-ml-2"}


def test_a_loop_costs_what_its_machines_ran():
    """Each boot of two machines takes ten minutes: 3 x 2 x 10 minutes, and the price."""
    tally = Tally().read_all(boot_loop("train", nodes=2, boots=4, minutes=10))
    assert tally.failed == {"train": 6}
    assert tally.machine_s["train"] == 3600
    assert LIMITS.cost("train", tally.machine_s["train"]) == "which cost $21.50"
    assert LIMITS.cost("other", 3600) == "at a price that is not known"


def test_a_machine_that_comes_ends_the_count():
    others = boot_loop("train-2", nodes=1, boots=2, minutes=10)
    lines = [*boot_loop("train", nodes=1, boots=4, minutes=10), *others, success("train")]
    tally = Tally().read_all(lines)
    assert (tally.failed, tally.machine_s) == ({"train-2": 1}, {"train-2": 600})
    assert list(tally.launched) == ["train-2-st-trn1-1"]


def test_refusals_of_aws_are_kept_in_its_words():
    """Row 16."""
    tally = Tally().read_all([capacity_refusal("train", 4)])
    assert tally.refused["train"].startswith(
        "InsufficientInstanceCapacity: We currently do not have sufficient trn1.32xlarge capacity"
    )
    assert tally.failed == {}


@pytest.mark.parametrize("boots", [5, 6, 7])
def test_a_loop_is_stopped_at_the_configured_number(boots, tmp_path):
    """Row 17: a replayed log with N failures, of a limit of 5; the first boot has not failed yet."""
    log = tmp_path / "clustermgtd"
    log.write_text("\n".join(boot_loop("train", nodes=1, boots=boots, minutes=10)) + "\n")
    slurm = Slurm()
    found = look(LIMITS, slurm, [log], tmp_path / "guard.json", NOW)
    assert bool(found) is (boots > 5)
    if found:
        assert slurm.ordered == [
            "scontrol update partitionname=train state=inactive",
            "update-compute-fleet-status.sh --status PROTECTED",
        ]
        assert found[0].queue == "train"
        assert f"{boots - 1} machines failed to boot (Node train-st-trn1-1(" in found[0].text
        assert "the queue is closed until kitae cluster start" in found[0].text


def test_a_loop_is_counted_over_many_looks_and_stopped_once(tmp_path):
    log, state, slurm = tmp_path / "clustermgtd", tmp_path / "guard.json", Slurm()
    found = []
    for line in boot_loop("train", nodes=1, boots=7, minutes=10):
        with log.open("a") as file:
            file.write(line + "\n")
        found += look(LIMITS, slurm, [log], state, NOW)
    assert len(found) == 1
    assert "5 machines failed to boot" in found[0].text
    assert "which cost $17.92" in found[0].text  # 5 x 10 minutes x 21.50
    assert len(Memory.at(state).verdicts) == 1


def test_jobs_that_run_in_the_queue_go_on_and_those_that_wait_are_held(tmp_path):
    log = tmp_path / "clustermgtd"
    log.write_text("\n".join(boot_loop("train", nodes=1, boots=6, minutes=10)) + "\n")
    slurm = Slurm(squeue="8|train|1|5:00|train-dy-trn1-3\n", sinfo="train-dy-trn1-3|alloc#\n", running="7\n")
    [found] = look(LIMITS, slurm, [log], tmp_path / "guard.json", NOW)
    assert slurm.ordered == ["scontrol requeuehold 8"]
    assert "jobs run there, so those that wait are held (8)" in found.text


SINFO = "".join(f"train-dy-trn1-{n}|alloc\n" for n in (1, 2, 3)) + "train-dy-trn1-4|alloc#\n"


@pytest.mark.parametrize(("waited", "over"), [("19:59", False), ("20:00", True)])
def test_three_of_four_machines_of_a_job_are_given_back_after_twenty_minutes(waited, over):
    """T55: 3 x 20/60 x price."""
    slurm = Slurm(squeue=f"12|train|4|{waited}|train-dy-trn1-[1-4]\n", sinfo=SINFO)
    found = end_waits(LIMITS, slurm, NOW)
    assert bool(found) is over
    if over:
        assert found[0].text == (
            "3 of 4 machines of job 12 came, and waited 20 minutes for the others, which cost $21.50; they "
            "are given back, and the job is held (scontrol release 12)"
        )
        assert slurm.ordered == [
            "scontrol requeuehold 12",
            "scontrol update nodename=train-dy-trn1-[1-4] state=power_down_force reason=kitae",
        ]


def test_a_job_without_machines_yet_waits():
    slurm = Slurm(squeue="12|train|4|0:00|\n")
    [one] = jobs_that_wait(slurm)
    assert (one.came, one.waited_s) == (0, 0.0)
    assert jobs_that_wait(Slurm(squeue="1|q|1|1-02:03:04|q-dy-x-1\n"))[0].waited_s == 93784.0


def test_machines_that_are_always_on_are_closed_when_they_wait_for_others(tmp_path):
    """Row 16 without a job, and without a laptop."""
    sinfo = "".join(f"train-st-trn1-{n}|train|{'idle' if n < 4 else 'down~'}\n" for n in range(1, 5))
    slurm, state = Slurm(sinfo=sinfo), tmp_path / "guard.json"
    minutes = [look(LIMITS, slurm, [], state, NOW + timedelta(minutes=minute)) for minute in range(21)]
    assert [bool(found) for found in minutes] == [False] * 20 + [True]
    assert minutes[20][0].text.startswith(
        "3 of 4 machines came, and waited 20 minutes for the others, which cost $21.50"
    )
    assert slurm.ordered[0] == "scontrol update partitionname=train state=inactive"


@pytest.mark.parametrize(
    "sinfo",
    [
        "train-st-trn1-1|train|alloc\ntrain-st-trn1-2|train|down~\n",
        "train-st-trn1-1|train|idle\ntrain-st-trn1-2|train|idle\n",
        "train-dy-trn1-1|train|idle\ntrain-dy-trn1-2|train|idle~\n",
        "train-st-trn1-1|train|inact\ntrain-st-trn1-2|train|inact\n",
    ],
)
def test_fleets_that_work_or_are_whole_or_are_of_jobs_are_left_alone(sinfo, tmp_path):
    slurm, state = Slurm(sinfo=sinfo), tmp_path / "guard.json"
    for minute in (0, 60):
        assert look(LIMITS, slurm, [], state, NOW + timedelta(minutes=minute)) == []
    assert slurm.ordered == []


def test_a_log_that_is_rotated_is_read_from_its_beginning_and_half_a_line_waits(tmp_path):
    memory, log = Memory(), tmp_path / "log"
    log.write_text("one\ntw")
    assert memory.new_lines(log) == ["one"]
    log.write_text("one\ntwo\n")
    assert memory.new_lines(log) == ["two"]
    log.rename(tmp_path / "log.1")
    log.write_text("three\n")
    assert memory.new_lines(log) == ["three"]
    assert memory.new_lines(tmp_path / "none") == []


def test_a_memory_that_is_broken_begins_anew(tmp_path):
    (tmp_path / "guard.json").write_text('{"tally": {"fai')
    assert Memory.at(tmp_path / "guard.json") == Memory()


def test_the_report_is_told_until_that_worked(tmp_path):
    state, told = tmp_path / "guard.json", []

    def copied(path: Path, to: str) -> bool:
        told.append((path, to))
        return len(told) > 1

    tell(state, "s3://b/guard", copied)
    assert told == []
    Memory(verdicts=[{"time": "t", "queue": "q", "text": "x"}]).keep(state)
    for _ in range(3):
        tell(state, "s3://b/guard", copied)
    assert len(told) == 2


# What comes from the bucket allows four failures.
TOLD = '{"boot_failures": 4, "capacity_wait_s": 1200, "usd": {"train": "21.50"}}'
ANSWER = {"aws": f'case "$*" in *limits.json) echo \'{TOLD}\' >"$5";; esac\n'}


def test_as_a_program_it_needs_nothing_but_python(tmp_path):
    """As the head node's timer starts it, without what kitae is installed with."""
    log = tmp_path / "var/log/parallelcluster/clustermgtd"
    log.parent.mkdir(parents=True)
    log.write_text("\n".join(boot_loop("train", nodes=2, boots=4, minutes=10)) + "\n")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("squeue", "sinfo", "scontrol", "update-compute-fleet-status.sh", "aws"):
        (programs / name).write_text(
            f'#!/bin/sh\necho "{name} $*" >>{tmp_path}/calls\n{ANSWER.get(name, "")}'
        )
        (programs / name).chmod(0o755)
    words = [sys.executable, "-I", "-S", guard_program.__file__, "s3://b/guard"]
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "KITAE_ROOT": str(tmp_path)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert "kitae guard: queue train: 6 machines failed to boot" in done.stdout
    assert "which cost $21.50" in done.stdout
    calls = (tmp_path / "calls").read_text()
    assert "update-compute-fleet-status.sh --status PROTECTED" in calls
    assert "s3://b/guard/report.json" in calls
    kept = json.loads((tmp_path / "var/lib/kitae/guard.json").read_text())
    assert kept["told"] == 1
