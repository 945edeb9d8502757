"""The rules of decide.py, one test for each row of its table."""

import pytest

from kitae.errors import DataError, KitaeError, StorageError, TrainingError
from kitae.launch.failure import End, NodeLostError
from kitae.launch.node_end import NodeEnd
from kitae.launch.outcome import Outcome
from kitae.launch.slurm.decide import Ended, Move, Record, decide
from kitae.launch.slurm.fault import Fault, fault_of

FIRST = Record(1, {"n2": 1})
DIED = Ended("failed", "rank 3 was killed by SIGKILL", node="n2")
DRAINED = {"n2": "drained (a fan)"}


@pytest.mark.parametrize(
    ("ended", "record", "move"),
    [
        (Ended("complete"), Record(3, {}), Move("end", "complete")),
        (
            Ended("stopped", "..", asked="time limit"),
            Record(0, {}),
            Move("requeue", "the time limit is near"),
        ),
        (Ended("stopped", ".."), Record(0, {}), Move("requeue", "stopped from outside (preempted?)")),
        (
            Ended("stopped", "..", asked="time limit", bad_nodes=DRAINED),
            Record(0, {}),
            Move("requeue", "the time limit is near", DRAINED),
        ),
        (Ended("stopped", "..", asked="stop"), Record(0, {}), Move("end", "stopped as asked", failed=True)),
        (
            Ended("stopped", "..", asked="stop", leaving=True),
            Record(0, {}),
            Move("end", "stopped as asked", failed=True),
        ),
        (
            Ended("stopped", "stopped by SIGTERM", leaving=True),
            Record(0, {}),
            Move("end", "stopped by SIGTERM; Slurm ends the job (cancelled, or queued again)", failed=True),
        ),
        (
            Ended("failed", "the loss is nan", repeats=True, node="n2"),
            FIRST,
            Move("end", "the loss is nan", failed=True),
        ),
        (DIED, FIRST, Move("again", DIED.why)),
        (DIED, Record(2, {"n1": 1, "n2": 1}), Move("again", DIED.why)),
        (
            DIED,
            Record(2, {"n2": 2}),
            Move("requeue", DIED.why, {"n2": "processes failed there 2 times"}),
        ),
        (
            Ended("failed", "node n2 is gone", node="n2", bad_nodes={"n2": "down"}),
            FIRST,
            Move("requeue", "node n2 is gone", {"n2": "down"}),
        ),
        (Ended("failed", "died", asked="time limit"), FIRST, Move("requeue", "died")),
    ],
)
def test_what_follows(ended, record, move):
    assert decide(ended, record, max_attempts=5) == move


@pytest.mark.parametrize("ended", [DIED, Ended("stopped", "saved nothing", asked="time limit")])
def test_attempts_are_bounded(ended):
    """Row 49, and a time limit in which not one step is saved."""
    moves = [decide(ended, Record(failures, {}), 3).action for failures in (1, 2, 3)]
    assert moves[-1] == "end"
    assert "end" not in moves[:-1]
    assert (
        "given up after 3 attempts that failed (target.max_attempts)" in decide(ended, Record(3, {}), 3).why
    )


def end(rank: int, code: int, outcome: Outcome | None, at: int = 0) -> End:
    return End(rank, 100 + rank, code, outcome, ended_here=False, noticed_ns=at)


LOST = Outcome("bug", "connection closed by peer", lost_peer=True, at_ns=5)
KILLED = [
    NodeEnd("n1", (end(0, 1, LOST), end(1, 1, LOST))),
    NodeEnd("n2", (end(2, -9, None, 7), end(3, 1, LOST))),
]


def test_a_killed_rank_is_the_fault_of_its_node_and_not_of_those_that_lost_it():
    assert fault_of(TrainingError("rank 2 was killed"), KILLED) == Fault("n2", repeats=False)


def test_an_error_of_a_rank_would_come_again():
    nodes = [NodeEnd("n1", (end(0, 3, Outcome("error", "row 7", "DataError", at_ns=3)),)), KILLED[0]]
    assert fault_of(DataError("row 7"), nodes) == Fault("n1", repeats=True)


def test_a_node_that_is_gone_and_one_whose_rank_is_stuck():
    assert fault_of(NodeLostError("n2 is gone", "n2"), [None]) == Fault("n2", repeats=False)
    stuck = Outcome("error", "no rank has moved", "TrainingError", at_ns=9)
    nodes = [NodeEnd("n1", (end(0, 1, LOST),)), NodeEnd("n2", (), stuck)]
    assert fault_of(TrainingError("stuck"), nodes) == Fault("n2", repeats=False)


@pytest.mark.parametrize(
    ("error", "repeats"),
    [(TrainingError("no node has begun"), False), (StorageError("full"), True), (KitaeError("locked"), True)],
)
def test_what_fails_before_the_ranks(error, repeats):
    assert fault_of(error, []) == Fault("", repeats)
