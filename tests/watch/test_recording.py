"""Samples in the run: bounded, true to the whole run, and gone on with by the next attempt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kitae.storage.files import show_file
from kitae.watch.recording import MOST_LINES, Recording
from kitae.watch.samples import CoreSample, Sample, latest_samples, lines_file, read_samples


def sample(number: int, busy: float | None = None) -> Sample:
    value = number % 2 / 2 if busy is None else busy
    return Sample(5.0 * (number + 1), 5.0, "host", "one", cores=(CoreSample(0, value),))


def write(run: Path, count: int, most_lines: int = 8, first: int = 0) -> Recording:
    recording = Recording(run, "one", 5.0, most_lines)
    for number in range(first, first + count):
        recording.write(sample(number))
    return recording


def test_each_sample_is_a_line_until_there_are_too_many(tmp_path: Path):
    write(tmp_path, 8)
    assert read_samples(tmp_path)["one"] == [sample(number) for number in range(8)]


def test_then_two_become_one_and_lines_stand_for_twice_as_long(tmp_path: Path):
    write(tmp_path, 12)
    found = read_samples(tmp_path)["one"]
    assert [one.period_s for one in found] == [10.0] * 4 + [5.0] + [10.0], "the fifth came as it was full"
    assert [one.time for one in found][:4] == [10.0, 20.0, 30.0, 40.0]
    assert [one.utilisation for one in found][:4] == [0.25] * 4


@pytest.mark.parametrize("count", [8, 9, 100, 1000])
def test_however_long_it_goes_on_the_file_is_bounded_and_tells_of_all_of_it(tmp_path: Path, count: int):
    write(tmp_path, count).flush()
    found = read_samples(tmp_path)["one"]
    assert len(found) <= 9
    assert sum(one.period_s for one in found) == 5.0 * count
    mean = sum(one.utilisation * one.period_s for one in found) / (5.0 * count)
    assert mean == pytest.approx(sum(number % 2 / 2 for number in range(count)) / count, rel=1e-3)


def test_by_default_a_file_has_2000_lines(tmp_path: Path):
    lines = [json.dumps(sample(number).as_json()) + "\n" for number in range(2000)]
    (tmp_path / "devices").mkdir()
    lines_file(tmp_path, "one").write_text("".join(lines))
    write(tmp_path, 1, MOST_LINES, first=2000).flush()
    assert [one.period_s for one in read_samples(tmp_path)["one"]] == [10.0] * 1000 + [5.0]


def test_the_newest_is_shown_at_once(tmp_path: Path):
    recording = write(tmp_path, 80)
    for number in range(80, 85):
        recording.write(sample(number))
        assert latest_samples(tmp_path)["one"] == sample(number)


def test_the_next_attempt_goes_on_as_coarsely(tmp_path: Path):
    write(tmp_path, 40).flush()
    lines = len(read_samples(tmp_path)["one"])
    write(tmp_path, 8, first=40)
    assert len(read_samples(tmp_path)["one"]) <= lines + 2


def test_a_line_that_a_kill_left_is_ended(tmp_path: Path):
    write(tmp_path, 2)
    with lines_file(tmp_path, "one").open("a") as file:
        file.write('{"time": 15.0, "per')
    write(tmp_path, 1, first=3)
    assert [one.time for one in read_samples(tmp_path)["one"]] == [5.0, 10.0, 20.0]


def test_a_disk_that_takes_nothing_harms_nobody(tmp_path: Path):
    (tmp_path / "devices").write_text("no folder")
    write(tmp_path, 20).flush()
    assert read_samples(tmp_path) == {}


def test_a_file_that_is_shown_is_whole_and_leaves_nothing(tmp_path: Path):
    show_file(tmp_path / "one", b"old")
    show_file(tmp_path / "one", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("one", b"new")]
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        show_file(tmp_path / "folder", b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "one"]
