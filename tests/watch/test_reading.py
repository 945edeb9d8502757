"""Metrics as series, read on as the file grows."""

from __future__ import annotations

import json
import math
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_runs import BEGUN, BEGUN_S, update

from kitae.train.metrics import MetricsLog
from kitae.watch.reading import RANKS_KEPT, Readings, thinned

START = {"kind": "start", "step": 0, "steps": 10, "attempt": 1, "time": BEGUN, "devices": 2}


def append(run: Path, *records: dict[str, object], end: str = "\n") -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write("\n".join(json.dumps(one) for one in records) + end)


def test_series_grow_with_the_file(tmp_path: Path):
    readings = Readings(tmp_path)
    assert readings.refresh() is False
    append(tmp_path, START, update(1, 9.0, utilisation=0.5))
    assert readings.refresh() is True
    assert readings.refresh() is False
    append(tmp_path, update(2), {"kind": "evaluation", "step": 2, "loss": 2.5, "seconds": 4.0}, update(3))
    assert readings.refresh() is True
    assert readings.starts == [START]
    assert list(readings.train.step) == [1, 2, 3]
    assert list(readings.train.loss) == [2.9, 2.8, 2.7]
    assert readings.train.last("step_seconds") == 2.0
    assert readings.train.last("utilisation") is None
    assert readings.train.utilisation[0] == 0.5
    assert [(one["step"], one["loss"], one["index"]) for one in readings.evaluations] == [(2, 2.5, 2)]


def test_times_are_those_of_the_attempt_and_of_what_came_since(tmp_path: Path):
    append(tmp_path, START, update(1, 9.0), {"kind": "evaluation", "step": 1, "loss": 2.5, "seconds": 4.0})
    append(tmp_path, update(2), {**START, "time": "2026-11-30T20:00:00+00:00"}, update(3, 5.0))
    readings = Readings(tmp_path)
    readings.refresh()
    assert list(readings.train.time) == [BEGUN_S + 9, BEGUN_S + 15, BEGUN_S + 3605]
    assert readings.evaluations[0]["time"] == BEGUN_S + 13


def test_a_half_written_line_is_read_when_it_is_whole(tmp_path: Path):
    append(tmp_path, START)
    text = json.dumps(update(1))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(text[:20])
    readings = Readings(tmp_path)
    readings.refresh()
    assert len(readings.train) == 0
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(text[20:] + "\n")
    assert readings.refresh() is True
    assert list(readings.train.step) == [1]


def test_what_is_broken_is_passed_over(tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_bytes(
        b'\xff\xfe\n[1]\n{"kind": "train", "step": 4, "loss": "high"}\n\n{"kind": []}\n{}\n'
    )
    readings = Readings(tmp_path)
    readings.refresh()
    assert list(readings.train.step) == [4]
    assert math.isnan(readings.train.loss[0])


def test_a_run_that_resumes_is_read_anew(tmp_path: Path):
    """The steps that its checkpoint does not have are no more."""
    append(tmp_path, START, *(update(step) for step in range(1, 6)))
    readings = Readings(tmp_path)
    readings.refresh()
    with MetricsLog(tmp_path / "metrics.jsonl", 3) as log:
        log.write({**START, "step": 3, "attempt": 2})
        log.write(update(4))
    assert readings.refresh() is True
    assert list(readings.train.step) == [1, 2, 3, 4]
    assert len(readings.starts) == 2


def test_a_folder_that_is_gone_leaves_nothing(tmp_path: Path):
    append(tmp_path, START, update(1))
    readings = Readings(tmp_path)
    readings.refresh()
    (tmp_path / "metrics.jsonl").unlink()
    assert readings.refresh() is True
    assert len(readings.train) == len(readings.starts) == 0
    assert readings.refresh() is False


def test_a_long_file_can_be_read_in_parts(tmp_path: Path):
    append(tmp_path, START, *(update(step) for step in range(1, 101)))
    readings = Readings(tmp_path)
    lengths = []
    while readings.refresh(most_bytes=2000):
        lengths.append(len(readings.train))
    assert lengths == sorted(set(lengths))
    assert len(lengths) > 3
    assert lengths[-1] == 100


def test_phases_begin_where_their_name_is_new(tmp_path: Path):
    append(tmp_path, START, update(1, phase="short"), update(2, phase="short"), update(3, phase="long"))
    readings = Readings(tmp_path)
    readings.refresh()
    assert readings.phases == [("short", 0), ("long", 2)]


def test_of_records_of_ranks_old_ones_are_left_out(tmp_path: Path):
    append(tmp_path, *({"kind": "ranks", "step": step} for step in range(RANKS_KEPT + 1)))
    readings = Readings(tmp_path)
    readings.refresh()
    assert len(readings.ranks) == RANKS_KEPT // 2 + 1
    assert readings.ranks[0]["step"] == 0
    assert readings.ranks[-1]["step"] == RANKS_KEPT


numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)


@settings(deadline=None, max_examples=50)
@given(ys=st.lists(numbers, max_size=300), points=st.integers(4, 60))
def test_thinned_series_keep_ends_and_extremes(ys: list[float], points: int):
    xs = [float(x) for x in range(len(ys))]
    kept_x, kept_y = thinned(xs, ys, points)
    assert len(kept_x) <= max(points, 4)
    assert kept_x == sorted(kept_x)
    assert all(ys[int(x)] == y for x, y in zip(kept_x, kept_y, strict=True))
    if ys:
        assert (kept_x[0], kept_x[-1]) == (xs[0], xs[-1])
        assert (min(kept_y), max(kept_y)) == (min(ys), max(ys))


def test_what_is_not_finite_is_not_drawn():
    assert thinned([1, 2, 3], [math.nan, 5.0, math.inf], 10) == ([2], [5.0])
