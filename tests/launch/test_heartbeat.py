"""What a rank writes and its watcher reads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kitae.launch.heartbeat import Beat, Heartbeat, HeartbeatReader, make_heartbeat


@pytest.fixture
def path(tmp_path: Path) -> Path:
    make_heartbeat(tmp_path / "rank-0.beat")
    return tmp_path / "rank-0.beat"


def test_a_rank_that_has_not_begun(path: Path):
    assert HeartbeatReader(path).read() == Beat(0, False, 0, 0, 0, "")


def test_every_sign_is_seen_at_once(path: Path):
    reader, heartbeat = HeartbeatReader(path), Heartbeat(path)
    assert reader.read() == Beat(os.getpid(), False, 0, 0, 0, "")
    heartbeat.ready()
    heartbeat.enter()
    heartbeat.enter()
    heartbeat.leave()
    heartbeat.touch("step 3: saving")
    beat = reader.read()
    assert beat == Beat(os.getpid(), True, 2, 1, 1, "step 3: saving")
    assert beat.waits
    heartbeat.leave()
    assert not reader.read().waits


def test_a_text_is_cut_to_its_place_and_replaces_the_last_one(path: Path):
    reader, heartbeat = HeartbeatReader(path), Heartbeat(path)
    heartbeat.touch("保" * 200)
    assert reader.read().where.startswith("保" * 60)
    heartbeat.touch("eval")
    assert reader.read() == Beat(os.getpid(), False, 0, 0, 2, "eval")


def test_counts_of_several_threads_are_all_counted(path: Path):
    """Gradients are summed in another thread than the training's."""
    reader, heartbeat = HeartbeatReader(path), Heartbeat(path)

    def collectives(_: int) -> None:
        for _ in range(2000):
            heartbeat.enter()
            heartbeat.leave()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(collectives, range(4)))
    heartbeat.enter()
    heartbeat.leave()
    assert (reader.read().entered, reader.read().left) == (8001, 8001)
