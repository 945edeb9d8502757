"""One meaning, whatever release says it: the same jobs and nodes in every form."""

from pathlib import Path

import pytest

from kitae.launch.slurm.parse import (
    JobState,
    NodeState,
    jobs_of_json,
    jobs_of_text,
    nodes_of_json,
    nodes_of_text,
    record_of,
)

SAMPLES = Path(__file__).with_name("samples")
RUNNING = JobState(1, "kitae x", "RUNNING", "None", "n[1-2]", 2, 1796066056.0, 1796066057.0)
WAITING = JobState(2, "j.sh", "PENDING", "Dependency", "", 1, 1796066056.0, 0.0)


def sample(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("release", ["22.05", "24.11"])
def test_jobs_are_the_same_in_both_forms_of_json(release):
    assert jobs_of_json(sample(f"squeue-{release}.json"))[:2] == [RUNNING, WAITING]


def test_a_job_whose_nodes_are_started_is_not_running_yet():
    assert jobs_of_json(sample("squeue-24.11.json"))[2].state == "CONFIGURING"


def test_jobs_as_text(monkeypatch):
    """Columns of squeue; times without a zone are of this machine."""
    text = "1|RUNNING|None|n[1-2]|2|2026-11-30T19:14:16|2026-11-30T19:14:17|kitae x\nslurm: odd line\n"
    (job,) = jobs_of_text(text)
    assert (job.number, job.state, job.nodes, job.node_count, job.name) == (
        1,
        "RUNNING",
        "n[1-2]",
        2,
        "kitae x",
    )
    assert job.started - job.submitted == 1.0
    (job,) = jobs_of_text("2|PENDING|Dependency||1|2026-11-30T19:14:16|N/A|a|b\n")
    assert (job.reason, job.started, job.name) == ("Dependency", 0.0, "a|b")


@pytest.mark.parametrize("name", ["sinfo-22.05.json", "sinfo-24.11.json", "nodes-23.11.json"])
def test_nodes_are_the_same_in_all_forms_of_json(name):
    found = {node.name: node for node in nodes_of_json(sample(name))}
    assert found == {
        "n1": NodeState("n1", frozenset({"IDLE"}), ""),
        "n2": NodeState("n2", frozenset({"DOWN", "NOT_RESPONDING"}), "Not responding"),
        "n3": NodeState("n3", frozenset({"IDLE"}), ""),
    }
    assert [node.name for node in found.values() if node.bad] == ["n2"]
    assert str(found["n2"]) == "down+not_responding (Not responding)"


def test_nodes_as_text():
    text = "n1|idle|none\nn2|down*|Not responding\nc1|idle~|none\nc2|mixed#|none\nn4|draining@|a fan\n"
    found = {node.name: node.states for node in nodes_of_text(text)}
    assert found == {
        "n1": {"IDLE"},
        "n2": {"DOWN", "NOT_RESPONDING"},
        "c1": {"IDLE", "POWERED_DOWN"},
        "c2": {"MIXED", "POWERING_UP"},
        "n4": {"DRAINING", "REBOOT"},
    }


def test_what_is_something_else_is_refused():
    for text in ("[]", '{"jobs": 3}', "not json"):
        with pytest.raises(ValueError):
            jobs_of_json(text)


def test_a_record_of_scontrol():
    text = (
        "JobId=1 JobName=kitae x UserId=root(0) JobState=RUNNING Reason=None Dependency=(null) Restarts=1\n"
    )
    record = record_of(text)
    assert (record["JobState"], record["Restarts"], record["Dependency"]) == ("RUNNING", "1", "(null)")
