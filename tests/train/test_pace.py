import random

import pytest
from parallel_training import Topology, trained

from kitae.parallel.mesh import Mesh
from kitae.train.metrics import read_records
from kitae.train.pace import EVERY, WINDOW, Pace, Slow, node_name, slow_ranks


def steps(count, ranks, slow=None, factor=1.5, seed=0):
    draw = random.Random(seed)
    return [
        [draw.uniform(0.9, 1.1) * (factor if rank == slow else 1.0) for rank in range(ranks)]
        for _ in range(count)
    ]


@pytest.mark.parametrize("ranks", [2, 4, 32])
def test_a_rank_that_is_half_as_fast_again_is_named_within_twenty_steps(ranks):
    """Pain 51: named within 20 steps; nobody is in the clean times."""
    (found,) = slow_ranks(steps(WINDOW, ranks, slow=1))
    assert found.rank == 1
    assert found.ratio == pytest.approx(1.5, abs=0.1)
    assert slow_ranks(steps(200, ranks)) == []


def test_a_few_slow_steps_are_no_slow_rank():
    times = steps(WINDOW, 4)
    for step in times[:9]:
        step[2] *= 3
    assert slow_ranks(times) == []
    times[9][2] *= 3
    assert [one.rank for one in slow_ranks(times)] == [2]


def test_short_steps_are_no_measure():
    tiny = [[seconds / 100 for seconds in step] for step in steps(WINDOW, 2, slow=1, factor=3)]
    assert slow_ranks(tiny) == []


def test_nothing_can_be_said_of_one_rank_or_of_no_step():
    assert slow_ranks([]) == []
    assert slow_ranks(steps(40, 1, slow=0)) == []


def test_only_the_last_steps_count():
    assert slow_ranks(steps(WINDOW, 4, slow=3) + steps(WINDOW, 4)) == []


def test_a_slow_rank_is_told_once(monkeypatch):
    said, written = [], []
    pace = Pace(Mesh(), said.append, written.append)
    for number in range(3):
        times = steps(EVERY, 3, slow=2, seed=number)
        pace._look(10 * number, [(f"node-{rank}", [step[rank] for step in times]) for rank in range(3)])
    assert [one["slow"][0]["rank"] for one in written] == [2, 2, 2]
    assert [one["step"] for one in written] == [0, 10, 20]
    assert len(written[0]["compute_seconds"]) == 3
    assert len(said) == 1
    assert said[0].startswith("rank 2 on node-2 computes 1.")
    assert isinstance(slow_ranks(steps(WINDOW, 2, slow=0))[0], Slow)


def test_ranks_tell_each_other_as_they_train(tmp_path, monkeypatch):
    trained(Topology(dp=2), tmp_path, steps=EVERY, batch=2)
    (record,) = [one for one in read_records(tmp_path / "run/metrics.jsonl") if one["kind"] == "ranks"]
    assert record["step"] == EVERY
    assert record["nodes"] == [node_name()] * 2
    updates = [one for one in read_records(tmp_path / "run/metrics.jsonl") if one["kind"] == "train"]
    assert all(0 < one <= max(u["step_seconds"] for u in updates) for one in record["compute_seconds"])
