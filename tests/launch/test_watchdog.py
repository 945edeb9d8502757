"""When nothing moves any more, and whom the others wait for."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.launch.heartbeat import Beat
from kitae.launch.order import Launch
from kitae.launch.supervisor import stuck_error
from kitae.launch.watchdog import MOST_BETWEEN_LOOKS_S, START_S, Sight, Watchdog, storage_bytes, to_blame


def sight(
    rank: int,
    entered: int,
    left: int | None = None,
    state: str = "sleeping",
    touched: int = 0,
    storage: int = 0,
) -> Sight:
    """A rank; without `left` it is inside its last collective."""
    beat = Beat(100 + rank, True, entered, entered - 1 if left is None else left, touched, "step 3")
    return Sight(rank, beat, state, storage)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def blamed(sights: list[Sight]) -> list[int]:
    return [one.rank for one in to_blame(sights)]


def test_the_rank_with_the_fewest_collectives_is_to_blame():
    assert blamed([sight(0, 8), sight(1, 7, 7), sight(2, 8), sight(3, 8)]) == [1]
    assert blamed([sight(0, 8), sight(1, 7), sight(2, 7, 7)]) == [1, 2]


def test_with_equal_counts_it_is_the_one_that_cannot_run_or_is_outside():
    assert blamed([sight(0, 8), sight(1, 8, state="stopped")]) == [1]
    assert blamed([sight(0, 8, 8, state="disk-sleep"), sight(1, 8, 8, state="running")]) == [0]
    assert blamed([sight(0, 8), sight(1, 8, 8)]) == [1]
    assert blamed([sight(0, 8), sight(1, 8)]) == [0, 1]
    assert blamed([sight(0, 0, 0, "starting"), sight(1, 0, 0)]) == [0, 1]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_somebody_is_always_to_blame_and_never_one_that_is_ahead(counts):
    sights = [sight(rank, entered, entered - inside) for rank, (entered, inside) in enumerate(counts)]
    guilty = to_blame(sights)
    assert guilty
    assert {one.beat.entered for one in guilty} == {min(one.beat.entered for one in sights)}


@pytest.mark.parametrize(
    "moved",
    [sight(1, 9), sight(1, 8, 8), sight(1, 8, touched=1), sight(1, 8, storage=4096)],
    ids=["enters", "leaves", "touches", "writes"],
)
def test_any_move_of_any_rank_begins_the_time_anew(moved: Sight):
    clock = Clock()
    watchdog = Watchdog(3.0, clock)
    still = [sight(0, 8), sight(1, 8)]
    for clock.now in (0.0, 1.0, 2.0):
        assert watchdog.look(still) == []
    for clock.now in (3.0, 4.0, 5.0):
        assert watchdog.look([still[0], moved]) == []
    clock.now = 6.0
    assert [one.rank for one in watchdog.look([still[0], moved])] != []


def test_a_start_may_take_longer():
    clock = Clock()
    watchdog = Watchdog(3.0, clock)
    importing = [sight(0, 2, 2), sight(1, 0, 0, "running")]
    watchdog.look(importing)
    for second in range(1, int(START_S)):
        clock.now = float(second)
        assert watchdog.look(importing) == []
    clock.now = START_S
    assert watchdog.look(importing) == [importing[1]]


def test_a_rank_that_ends_is_a_move_and_nobody_left_is_no_stall():
    clock = Clock()
    watchdog = Watchdog(1.0, clock)
    watchdog.look([sight(0, 8), sight(1, 8)])
    clock.now = 2.0
    assert watchdog.look([sight(0, 8)]) == []
    clock.now = 4.0
    assert watchdog.look([]) == []
    clock.now = 6.0
    assert watchdog.look([]) == []


def test_time_in_which_nobody_looked_hardly_counts():
    """The whole machine may have been asleep."""
    clock = Clock()
    watchdog = Watchdog(600.0, clock)
    still = [sight(0, 8), sight(1, 7, 7)]
    watchdog.look(still)
    for hour in range(1, 300):
        clock.now = hour * 3600.0
        assert watchdog.look(still) == []
    clock.now += 3600.0
    assert 300 * MOST_BETWEEN_LOOKS_S == 600.0
    assert watchdog.look(still) == [still[1]]


def test_storage_that_is_written_counts(tmp_path: Path):
    if not psutil.LINUX:
        pytest.skip("only Linux tells it")
    process = psutil.Process()
    before = storage_bytes(process)
    with (tmp_path / "file").open("wb") as file:
        file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    if storage_bytes(process) == before:
        pytest.skip("the temporary folder lies in memory")
    assert storage_bytes(process) >= before + (1 << 20)


def test_what_is_said_of_several_and_of_all():
    launch = Launch(4, 2, "cpu", 90.0, Path("logs"))
    sights = [sight(0, 8), sight(1, 8), sight(2, 8), sight(3, 7, state="disk-sleep")]
    one = str(stuck_error(sights[3:], launch, "\nlast"))
    assert "for 90 s (parallel.timeout_s); all wait for rank 3 (process 103, data-parallel rank 1, " in one
    assert "tensor-parallel rank 1, disk-sleep, in step 3)" in one
    assert one.endswith("\nlast")
    assert "rank 1 (process 101" in str(stuck_error(sights[:2], launch, ""))
    assert "none can be told from the others: rank 0" in str(stuck_error(sights, launch, ""))
