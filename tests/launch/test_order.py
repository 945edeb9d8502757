"""What ranks are told."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from kitae.launch.order import Launch, Order
from kitae.launch.worker import threads_of_rank


def test_an_order_is_read_as_it_was_written(tmp_path: Path):
    launch = Launch(8, 4, "cuda", 12.5, tmp_path / "logs", "attempt 2")
    order = Order(launch, "a.b:c", {"folder": "x", "n": 3}, os.getpid(), tmp_path)
    order.write()
    assert Order.read(order.path) == order


def test_places_and_files():
    launch = Launch(8, 4, "cpu", 1.0, Path("logs"))
    assert launch.place(6) == "data-parallel rank 1, tensor-parallel rank 2"
    assert launch.log(6) == Path("logs/rank-6.log")


@pytest.mark.parametrize(("ranks", "threads"), [(1, 12), (2, 6), (5, 2), (12, 1), (40, 1)])
def test_ranks_share_the_cores(monkeypatch: pytest.MonkeyPatch, ranks: int, threads: int):
    """Not hardware threads, and only those cores that this process may use."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(20)), raising=False)
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: 12)
    assert threads_of_rank(ranks) == threads
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: None)
    assert threads_of_rank(2) == 10
