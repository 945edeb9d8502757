"""The first real error of a run: from recorded nodes, records and logs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from recorded_runs import BEGUN_S, attempt, write_log, write_run

from kitae.launch.failure import End
from kitae.launch.node import node_file
from kitae.launch.node_end import NodeEnd
from kitae.launch.order import Launch, Order
from kitae.launch.outcome import Outcome
from kitae.watch.facts import Life, RunFacts
from kitae.watch.first_failure import FirstFailure, first_failure
from kitae.watch.status import status_of

HEAD = "---- 2026-11-30T19:00:01+0000 attempt 1: rank {rank} of 4 (x), process 7"
LOST = ["Traceback (most recent call last):", '  File "/x/kitae/backend/group.py", line 172, in wait']
GONE = "RuntimeError: Connection closed by peer"


def failure(run: Path, life: Life = "gone", count: int = 2) -> FirstFailure | None:
    status = status_of(RunFacts.read(run), {}, lambda attempt: life, BEGUN_S + 9)
    return first_failure(status, count)


def order(run: Path, number: int = 1) -> Path:
    """An attempt on two nodes of two ranks; its folder."""
    folder = run / f"attempts/{number:04d}"
    folder.mkdir(parents=True)
    launch = Launch(4, 1, "cpu", 60.0, Path("/elsewhere/logs"), attempt=folder, names=("left", "right"))
    Order(launch, "a:b", {}, 1, folder).write()
    return folder


def end(rank: int, at: int, *, own: bool = True, message: str = "", died: int = 0) -> End:
    outcome = None if died else Outcome("error" if own else "bug", message or GONE, "DataError", not own, at)
    return End(rank, 100 + rank, -died or 3, outcome, ended_here=False, noticed_ns=at)


def leave(folder: Path, left: Sequence[End], right: Sequence[End] | None) -> None:
    NodeEnd("left", tuple(left)).write(node_file(folder, 0))
    if right is not None:
        NodeEnd("right", tuple(right)).write(node_file(folder, 1))


def test_of_nodes_the_cause_and_not_what_came_of_it(tmp_path: Path):
    """Ranks of the other node noticed earlier that a peer was gone than rank 3's own error was written."""
    run = write_run(tmp_path, [attempt("failed", why="other words")], steps=2)
    leave(
        order(run),
        [end(0, 5, own=False), end(1, 6, own=False)],
        [end(2, 7, own=False), end(3, 9, message="row 7 is broken")],
    )
    write_log(run, 0, "2026-11-30T19:00:01+00:00 step", *LOST, GONE)
    log = write_log(run, 3, HEAD.format(rank=3), "reading", "DataError: row 7 is broken", "later")
    found = failure(run)
    assert found is not None
    assert found.title == "attempt 1, rank 3, right, data-parallel rank 3, tensor-parallel rank 0"
    assert (found.what, found.log) == ("rank 3: row 7 is broken", log)
    assert found.lines == ("reading", "DataError: row 7 is broken")


def test_of_nodes_a_rank_that_was_killed(tmp_path: Path):
    run = write_run(tmp_path, [attempt("failed")])
    leave(order(run), [end(0, 5, own=False), end(1, 8, died=9)], [end(2, 6, own=False), end(3, 6, own=False)])
    write_log(run, 1, HEAD.format(rank=1), "step 3")
    found = failure(run)
    assert found is not None
    assert found.title.startswith("attempt 1, rank 1, left")
    assert found.what.startswith("rank 1 (process 101 on left) was killed by SIGKILL (out of memory?)")
    assert found.lines[-1] == "step 3"


def test_of_nodes_one_that_is_gone_unless_its_ranks_knew_why(tmp_path: Path):
    run = write_run(tmp_path, [attempt("failed")])
    folder = order(run)
    leave(folder, [end(0, 5, own=False), end(1, 6, own=False)], None)
    found = failure(run)
    assert found is not None
    assert (found.title, found.what.partition(":")[0]) == ("attempt 1", "node right is gone")
    Outcome("error", "row 7 is broken", "DataError", at_ns=4).write(folder / "rank-2.json")
    Outcome("bug", GONE, lost_peer=True, at_ns=3).write(folder / "rank-3.json")
    found = failure(run)
    assert found is not None
    assert found.what == "rank 2: row 7 is broken"


def test_of_nodes_one_that_was_stuck(tmp_path: Path):
    run = write_run(tmp_path, [attempt("failed")])
    folder = order(run)
    said = "left: no rank has moved for 60 s (parallel.timeout_s); all wait for rank 1 (process 7, left)"
    stuck = Outcome("error", said, "TrainingError", at_ns=9)
    NodeEnd("left", (end(0, 9, own=False),), stuck).write(node_file(folder, 0))
    NodeEnd("right", (end(2, 8, own=False),)).write(node_file(folder, 1))
    log = write_log(run, 1, HEAD.format(rank=1), "Current thread 0x1:", '  File "x.py", line 1 in wait')
    found = failure(run)
    assert found is not None
    assert (found.what, found.log) == (said, log)
    assert found.lines == ("Current thread 0x1:", '  File "x.py", line 1 in wait')


def test_of_one_machine_what_the_starting_process_said(tmp_path: Path):
    why = "rank 1: the loss is not finite in step 3\nlast lines of x:\n  y"
    run = write_run(tmp_path, [attempt("stopped"), attempt("failed", why=why)])
    log = write_log(
        run,
        1,
        HEAD.replace("attempt 1", "attempt 2").format(rank=1),
        "TrainingError: the loss is not finite in step 3",
    )
    found = failure(run, count=1)
    assert found is not None
    assert (found.title, found.what) == ("attempt 2, rank 1", "rank 1: the loss is not finite in step 3")
    assert (found.log, found.lines) == (log, ("TrainingError: the loss is not finite in step 3",))


def log_at(run: Path, rank: int, seconds: float, *lines: str) -> None:
    log = write_log(run, rank, HEAD.format(rank=rank), *lines)
    os.utime(log, (BEGUN_S + seconds, BEGUN_S + seconds))


def test_of_a_process_that_was_killed_the_earliest_error_in_the_logs(tmp_path: Path):
    run = write_run(tmp_path, [attempt()])
    log_at(run, 1, 10, *LOST, GONE)
    log_at(run, 2, 12, "ValueError: later")
    log_at(run, 3, 11, "KeyError: 'first'")
    found = failure(run)
    assert found is not None
    assert (found.title, found.what) == ("attempt 1, rank 3", "KeyError: 'first'")
    assert found.lines[-1] == "KeyError: 'first'"


def test_a_rank_that_said_nothing_comes_before_those_that_lost_it(tmp_path: Path):
    run = write_run(tmp_path, [attempt("killed")])
    log_at(run, 1, 10, *LOST, GONE)
    log_at(run, 2, 12, "step 3")
    found = failure(run)
    assert found is not None
    assert found.what == "rank 2 ended and said nothing, while others lost it (killed?)"


def test_where_nobody_said_anything(tmp_path: Path):
    run = write_run(tmp_path, [attempt()])
    log_at(run, 1, 10, "step 3")
    found = failure(run)
    assert found is not None
    assert found.what.startswith("process 4242 on here is gone and left no word")
    assert found.what.endswith("; no log of a rank holds an error")


def test_a_run_that_goes_on_shows_what_failed_before(tmp_path: Path):
    run = write_run(tmp_path, [attempt("failed", why="a node is gone"), attempt()], steps=2)
    found = failure(run, life="alive")
    assert found is not None
    assert (found.title, found.what) == ("attempt 1", "a node is gone")


@pytest.mark.parametrize(
    "outcomes", [["finished"], ["failed", "finished"], ["stopped"], ["finished", "running"]]
)
def test_nothing_has_failed(tmp_path: Path, outcomes: list[str]):
    assert failure(write_run(tmp_path, [attempt(one) for one in outcomes]), life="alive") is None


def test_a_job_that_failed_before_anything_began(tmp_path: Path):
    run = write_run(tmp_path, jobs=[("prepare", 7)])
    log = run / "logs/slurm-prepare.log"
    log.write_text("one\ntwo\npython: No such file\n")
    found = failure(run)
    assert found is not None
    assert (found.title, found.what) == ("outside of an attempt", "job 7 is gone, and began nothing")
    assert (found.log, found.lines) == (log, ("two", "python: No such file"))
