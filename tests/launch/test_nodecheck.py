"""Which machines are broken or slow, from what their ranks have measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kitae.launch.failure import NodeLostError
from kitae.launch.nodecheck import LEAST_FREE_BYTES, TRIES, Finding, NodeFaultError, Report, findings, slow


def reports(matmul_s: Sequence[float] = (0.010, 0.011, 0.010), **changed: dict[int, object]) -> list[Report]:
    """Two ranks on each of three machines that are well; `changed` by field and rank."""
    links = [{other: 0.020 for other in range(3) if other != node} for node in range(3)]
    made = [
        Report(
            node=rank // 2,
            matmul_s=matmul_s[rank // 2],
            memory_bytes=64 << 30,
            free_bytes=LEAST_FREE_BYTES,
            received_s=None if rank % 2 else links[rank // 2],
        )
        for rank in range(6)
    ]
    for name, ranks in changed.items():
        for rank, value in ranks.items():
            made[rank] = replace(made[rank], **{name: value})
    return made


def test_machines_that_are_well():
    assert findings([reports()]) == []
    assert slow(reports()) == []


def test_a_machine_is_slow_from_1_3_times_the_median_of_the_others_on():
    """Row 51: the others take 10 and 11 ms, so the limit is 13.65 ms."""
    assert slow(reports((0.010, 0.011, 0.0136))) == []
    assert slow(reports((0.010, 0.011, 0.0137))) == [
        Finding(2, "it computes 1.3 x as slowly as the others", slow=True)
    ]


def test_the_slowest_rank_counts():
    assert slow([*reports()[:3], replace(reports()[3], matmul_s=0.022), *reports()[4:]]) == [
        Finding(1, "it computes 2.2 x as slowly as the others", slow=True)
    ]


def test_of_two_machines_the_slower_one_is_slow():
    two = [report for report in reports((0.010, 0.014, 0.010)) if report.node < 2]
    assert [found.node for found in slow(two)] == [1]


def test_a_machine_is_only_slow_that_was_so_in_every_round():
    bad, other, good = reports((0.01, 0.01, 0.02)), reports((0.01, 0.02, 0.01)), reports()
    assert [found.node for found in findings([bad] * TRIES)] == [2]
    assert findings([bad] * (TRIES - 1)) == []
    assert findings([*[bad] * (TRIES - 1), good]) == []
    assert findings([*[bad] * (TRIES - 1), other]) == []


def test_a_machine_whose_links_are_all_slow():
    """What comes to it and what goes from it takes 50 ms, between the others 20 ms."""
    links = {0: {1: 0.02, 2: 0.05}, 2: {0: 0.02, 2: 0.05}, 4: {0: 0.05, 1: 0.05}}
    assert slow(reports(received_s=links)) == [
        Finding(2, "it exchanges data 2.5 x as slowly as the others", slow=True)
    ]


def test_one_slow_link_is_nobodys_fault():
    assert slow(reports(received_s={0: {1: 0.02, 2: 0.5}})) == []


def test_a_difference_of_a_moment_is_none():
    links = {0: {1: 0.002, 2: 0.0039}, 2: {0: 0.002, 2: 0.0039}, 4: {0: 0.0039, 1: 0.0039}}
    assert slow(reports(received_s=links)) == []


def test_two_machines_share_their_only_link():
    two = [report for report in reports(received_s={0: {1: 0.5}, 2: {0: 0.02}}) if report.node < 2]
    assert slow(two) == []


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("wrong", "a product of matrices came wrong", "a product of matrices came wrong"),
        ("clock_s", -3.25, "its clock is -3.2 s off that of the first node; does chrony run?"),
        ("free_bytes", 200_000_000, "its temporary folder has 0.2 GB free"),
        ("memory_bytes", 32 << 30, "it has 34.4 GB of memory, the others 68.7 GB"),
    ],
)
def test_broken_machines_are_named_at_once(field: str, value: object, reason: str):
    assert findings([reports(**{field: {2: value, 3: value}})])[0] == Finding(1, reason)


def test_what_is_only_wrong_now_and_then_counts():
    assert findings([reports(), reports(wrong={5: "a sum came wrong"})]) == [Finding(2, "a sum came wrong")]


def test_a_fault_is_told_like_a_node_that_is_lost():
    slow, broken = NodeFaultError("n3", "it computes slowly", slow=True), NodeFaultError("n3", "no disk")
    assert isinstance(broken, NodeLostError)
    assert (broken.node, broken.reason, broken.slow) == ("n3", "no disk", False)
    assert str(broken) == "node n3 is not fit for a training: no disk"
    assert str(slow).endswith("; target.node_check: false trains with it all the same")
