"""Means over the last updates."""

from __future__ import annotations

import pytest
from recorded_runs import update

from kitae.watch.reading import Columns
from kitae.watch.speed import Speed, speed_of


def columns(*records: dict[str, object]) -> Columns:
    found = Columns()
    for record in records:
        found.add(record)
    return found


def told(step: int, seconds: float, rate: float) -> dict[str, object]:
    more = {"real_tokens": 800, "tokens_per_s_per_device": rate, "utilisation": rate / 1000}
    return update(step, seconds, **more)


def test_the_speed_is_tokens_by_seconds():
    """After the first: 2,000 padded and 1,600 real tokens in 1 + 3 s; rates count by how long they held."""
    speed = speed_of(columns(told(1, 9.0, 1.0), told(2, 1.0, 500.0), told(3, 3.0, 100.0)))
    assert (speed.tokens_per_s, speed.real_tokens_per_s, speed.step_seconds) == (500.0, 400.0, 2.0)
    assert speed.tokens_per_s_per_device == pytest.approx(200.0)
    assert speed.utilisation == pytest.approx(0.2)


def test_only_the_last_updates_count():
    speed = speed_of(columns(*(told(step, float(step), 1.0) for step in range(1, 6))), last=2)
    assert speed.step_seconds == 4.5


def test_what_is_not_told_is_not_made_up():
    assert speed_of(columns()) == Speed()
    assert speed_of(columns({"kind": "train", "step": 1})) == Speed()
    speed = speed_of(columns(update(1, 4.0)))
    assert (speed.tokens_per_s, speed.real_tokens_per_s, speed.utilisation) == (250.0, None, None)
