"""How a run is, from its folder, its process and its jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_runs import BEGUN_S, attempt, write_run

from kitae.launch.slurm.parse import JobState
from kitae.watch.facts import Life, RunFacts
from kitae.watch.state import Jobs
from kitae.watch.status import Status, status_of

NOW = BEGUN_S + 120
CHAIN = [("prepare", 1), ("import", 2), ("train", 3), ("prove", 4)]


def job(number: int, state: str, reason: str = "None", nodes: int = 0) -> JobState:
    return JobState(number, "a.train", state, reason, "n[1-3]" if nodes else "", nodes, 0.0, 0.0)


def jobs(*found: JobState) -> Jobs:
    return {one.number: one for one in found}


def status(run: Path, found: Jobs | None = None, life: Life = "alive", now: float = NOW) -> Status:
    return status_of(RunFacts.read(run), {} if found is None else found, lambda attempt: life, now)


def told(found: Status) -> tuple[str, str]:
    return found.state, found.why


def test_a_process_of_this_machine_that_works(tmp_path: Path):
    found = status(write_run(tmp_path / "a", [attempt()], steps=4))
    assert told(found) == ("running", "")
    assert (found.node_count, found.sign_age_s, found.seconds_left) == (1, 60.0, 12.0)


def test_a_stage_before_the_training_is_on_its_way(tmp_path: Path):
    assert told(status(write_run(tmp_path, [attempt(last="prove")]))) == ("running", "on its way to prove")


def test_a_process_that_died_without_a_word(tmp_path: Path):
    state, why = told(status(write_run(tmp_path, [attempt()], steps=4), life="gone"))
    assert state == "died"
    assert why.startswith("process 4242 on here is gone and left no word")


def test_a_process_elsewhere_is_silent_after_ten_minutes_or_twenty_steps(tmp_path: Path):
    run = write_run(tmp_path, [attempt()], steps=4, signed=BEGUN_S)
    assert told(status(run, life="elsewhere", now=BEGUN_S + 599)) == ("running", "process 4242 on here")
    state, why = told(status(run, life="elsewhere", now=BEGUN_S + 601))
    assert (state, why) == (
        "silent",
        "process 4242 on here, which cannot be seen from here; it may have died",
    )


@pytest.mark.parametrize(
    ("outcome", "why", "expected"),
    [
        ("finished", None, ("done", "train")),
        ("stopped", "stopped by SIGTERM after step 4", ("stopped", "stopped by SIGTERM after step 4")),
        ("failed", "row 7 is broken", ("failed", "row 7 is broken")),
        ("failed", None, ("failed", "its log says why: kitae logs")),
        ("killed", None, ("died", "its process went without a word")),
        ("given up", "2 of 3 nodes came", ("failed", "2 of 3 nodes came")),
    ],
)
def test_attempts_that_have_ended(tmp_path: Path, outcome, why, expected):
    run = write_run(tmp_path, [attempt("killed"), attempt(outcome, last="train", why=why)], steps=4)
    assert told(status(run, life="gone")) == expected


def test_all_stages_need_no_name(tmp_path: Path):
    assert told(status(write_run(tmp_path, [attempt("finished", last="prove")]))) == ("done", "")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (job(3, "RUNNING", nodes=3), ("running", "train, job 3")),
        (job(3, "SUSPENDED", nodes=3), ("running", "train, job 3: suspended")),
        (job(3, "CONFIGURING", nodes=3), ("waiting", "train, job 3: its nodes are being started")),
        (job(3, "PENDING", "Resources"), ("waiting", "train, job 3: for nodes: too few are free")),
        (job(3, "PENDING", "BeginTime"), ("waiting", "train, job 3: queued again, to begin soon")),
        (job(3, "PENDING", "QOSMaxNodePerUserLimit"), ("waiting", "train, job 3: QOSMaxNodePerUserLimit")),
    ],
)
def test_jobs_in_the_queue(tmp_path: Path, found: JobState, expected):
    """The folder says that the attempt before was stopped; the job goes on."""
    ended = attempt("stopped", job=3, nodes=["n1", "n2", "n3"], then="requeue")
    run = write_run(tmp_path, [ended], steps=4, jobs=CHAIN)
    waiting = job(4, "PENDING", "Dependency")
    assert told(status(run, jobs(job(1, "COMPLETED"), found, waiting))) == expected


def test_the_job_that_waits_for_nothing_but_nodes_is_told_first(tmp_path: Path):
    run = write_run(tmp_path, jobs=CHAIN)
    found = status(
        run, jobs(job(1, "PENDING", "Priority"), *(job(n, "PENDING", "Dependency") for n in (2, 3, 4)))
    )
    assert told(found) == ("waiting", "prepare, job 1: for nodes: other jobs come first")
    assert [one.number for one in found.open_jobs] == [1, 2, 3, 4]


def test_nodes_are_those_of_the_job(tmp_path: Path):
    run = write_run(tmp_path, [attempt(nodes=["n1", "n2"])], jobs=CHAIN)
    assert status(run, jobs(job(3, "RUNNING", nodes=3))).node_count == 3
    assert status(run, jobs()).node_count == 2


def test_a_job_that_ended_without_a_word_of_its_training(tmp_path: Path):
    run = write_run(tmp_path, [attempt(job=3, nodes=["n1"])], jobs=CHAIN)
    ended = jobs(job(3, "NODE_FAIL"))
    assert told(status(run, ended, "elsewhere")) == (
        "died",
        "job 3 ended as NODE_FAIL, and its training left no word",
    )
    assert told(status(run, jobs(), "elsewhere"))[1].startswith("job 3 is gone")


def test_a_job_that_failed_behind_one_that_worked(tmp_path: Path):
    run = write_run(tmp_path, [attempt("finished", last="prepare")], jobs=CHAIN)
    found = jobs(job(1, "COMPLETED"), job(2, "FAILED"), job(3, "CANCELLED"))
    assert told(status(run, found)) == ("failed", "import, job 2, ended as FAILED")


def test_jobs_that_never_began(tmp_path: Path):
    run = write_run(tmp_path, jobs=CHAIN)
    assert told(status(run, jobs(job(1, "CANCELLED")))) == ("stopped", "prepare, job 1, ended as CANCELLED")
    assert told(status(run, jobs())) == ("failed", "job 1 is gone, and began nothing")


def test_without_slurm_nobody_knows_what_became_of_a_job(tmp_path: Path):
    def blind(run: Path) -> tuple[str, str]:
        return told(status_of(RunFacts.read(run), None, lambda attempt: "elsewhere", NOW))

    assert blind(write_run(tmp_path / "a", jobs=CHAIN)) == (
        "waiting",
        "submitted as job 1; what became of it only Slurm can tell",
    )
    again = attempt("stopped", job=3, then="requeue")
    assert blind(write_run(tmp_path / "b", [again], jobs=CHAIN))[0] == "waiting"
    assert blind(write_run(tmp_path / "c", [attempt(job=3)], jobs=CHAIN))[0] == "running"


def test_money_is_that_of_all_attempts(tmp_path: Path):
    """Two nodes for an hour at $10 are recorded as $20.5; three for two minutes so far are $1."""
    first = attempt("stopped", nodes=["n1", "n2"], cost_usd=20.5)
    now = attempt(nodes=["n1", "n2", "n3"], price_per_node_hour=10.0)
    run = write_run(tmp_path, [first, now], steps=2)
    assert status(run).cost_usd == pytest.approx(21.5)


def test_money_of_an_attempt_that_died_ends_with_its_last_sign(tmp_path: Path):
    run = write_run(tmp_path, [attempt(nodes=["n1"], price_per_node_hour=60.0)], steps=2)
    assert status(run, life="gone", now=BEGUN_S + 9999).cost_usd == pytest.approx(1.0)


def test_money_is_unknown_without_a_price(tmp_path: Path):
    run = write_run(tmp_path, [attempt("stopped")])
    assert status(run).cost_usd is None
    (run / "recipe.yaml").write_text("target: {price_per_node_hour: 3.0}")
    assert status(run).cost_usd == pytest.approx(3.0)


def test_everything_for_programs(tmp_path: Path):
    run = write_run(tmp_path / "a", [attempt(job=3, nodes=["n1", "n2"])], steps=4, jobs=CHAIN)
    assert status(run, jobs(job(3, "RUNNING", nodes=2))).as_json() == {
        "run": "a",
        "path": str(run),
        "state": "running",
        "why": "train, job 3",
        "attempt": 1,
        "step": 4,
        "steps": 10,
        "loss": 2.6,
        "tokens_per_s": 500.0,
        "node_count": 2,
        "nodes": ["n1", "n2"],
        "seconds_left": 12.0,
        "cost_usd": None,
        "last_sign_s": 60.0,
        "job": 3,
        "pid": 4242,
        "host": "here",
    }


@pytest.mark.parametrize(
    ("content", "why"), [('{"attempts": [{"outc', "run.json is damaged"), (None, "no attempt")]
)
def test_a_damaged_file_is_not_taken_for_a_run_that_never_began(
    tmp_path: Path, content: str | None, why: str
):
    run = write_run(tmp_path / "a", [attempt("finished")], steps=4)
    (run / "run.json").unlink() if content is None else (run / "run.json").write_text(content)
    found = status(run)
    assert found.state == "stopped"
    assert found.why.startswith(why)
    assert found.progress.step == 4
