"""Numbers of one measurement, from the facts that a training leaves."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kitae.scale.measured import measured_of


def facts(**changes: Any) -> dict[str, Any]:
    """T48: 4 micro-batches x 2 rows x 128 tokens x 2 copies in 1 s, a quarter padding, the first 300 s."""
    first = {"step": 1, "loss": 5.0, "grad_norm": 2.0, "seconds": 300.0}
    steps = [first, *({**first, "step": step, "seconds": 1.0} for step in range(2, 23))]
    return {
        "width": 2,
        "round": 1,
        "warm_up": 2,
        "backend": "cpu",
        "waits_are_seen": True,
        "global_batch_size": 16,
        "micro_batch_size": 2,
        "accumulation_steps": 4,
        "copies": 2,
        "steps": [{**one, "padded_tokens": 4 * 2 * 128 * 2, "real_tokens": 1536} for one in steps],
        "ranks": [rank(0), rank(1)],
        **changes,
    }


def rank(number: int, seconds: float = 1.0, waited: float = 0.25, **changes: Any) -> dict[str, Any]:
    return {
        "rank": number,
        "node": f"n{number + 1}",
        "host": f"host-{number}",
        "cores": 2,
        "threads": 1,
        "seconds": [300.0] + [seconds] * 21,
        "waited_s": [200.0] + [waited] * 21,
        **changes,
    }


def test_t48_tokens_are_of_all_micro_batches_and_ranks_and_the_first_update_stands_apart():
    """Rows 33 and 48: 2,048 padded and 1,536 real tokens a second; 300 s shown apart."""
    found = measured_of(facts())
    assert (found.rate, found.real_rate, found.step_s) == (2048.0, 1536.0, 1.0)
    assert found.first_step_s == 300.0
    assert len(found.losses) == 22


def test_one_update_that_the_system_disturbed_does_not_count():
    given = facts()
    given["steps"][7]["seconds"] = 60.0
    assert measured_of(given).rate == 2048.0


def test_the_share_in_collectives_is_of_the_updates_that_count_on_every_rank():
    given = facts(ranks=[rank(0, waited=0.1), rank(1, waited=0.3)])
    found = measured_of(given).waits
    assert found is not None
    assert (found.mean, found.worst) == pytest.approx((0.2, 0.3))
    assert measured_of(facts(waits_are_seen=False)).waits is None


def ranks_of(slow: float, steps: int = 20, count: int = 4) -> list[dict[str, Any]]:
    """Ranks that compute about a second; one `slow` times as long. All wait for the slowest."""
    draw = random.Random(4)
    computed = [
        [draw.uniform(0.9, 1.1) * (slow if n == 2 else 1) for _ in range(steps)] for n in range(count)
    ]
    longest = [max(one) + 0.05 for one in zip(*computed, strict=True)]
    waits = [[a - b for a, b in zip(longest, own, strict=True)] for own in computed]
    return [
        {**rank(number), "seconds": [9.0, 9.0, *longest], "waited_s": [0.0, 0.0, *waits[number]]}
        for number in range(count)
    ]


def test_row_51_a_rank_that_is_one_and_a_half_times_slower_is_named_within_20_updates():
    given = facts(ranks=ranks_of(1.5))
    (slow,) = measured_of(given).slow
    assert (slow.rank, slow.node) == (2, "n3")
    assert slow.ratio == pytest.approx(1.5, abs=0.1)


def test_row_51_nobody_is_named_in_a_clean_log():
    assert measured_of(facts(ranks=ranks_of(1.0))).slow == ()
    assert measured_of(facts(ranks=[rank(0)])).slow == ()


@pytest.mark.parametrize(
    ("hosts", "threads", "backend", "over"),
    [
        (["a", "b"], 2, "cpu", False),
        (["a", "a"], 1, "cpu", False),
        (["a", "a"], 2, "cpu", True),
        (["a", "a"], 2, "cuda", False),
    ],
)
def test_threads_that_outnumber_the_cores_of_a_host_are_marked(hosts, threads, backend, over):
    ranks = [rank(number, host=host, threads=threads) for number, host in enumerate(hosts)]
    found = measured_of(facts(ranks=ranks, backend=backend))
    assert found.oversubscribed is over
    assert found.about is not None
    assert found.about["hosts"] == len(set(hosts))
