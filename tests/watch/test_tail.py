"""Files read from their ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.watch import tail
from kitae.watch.tail import first_record, last_lines, last_records, lines_from_end


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text("ab\u00e9", max_size=7), max_size=12), st.booleans(), st.integers(1, 9))
def test_lines_from_the_end_are_the_lines_reversed(tmp_path_factory, lines, ended, block):
    path = tmp_path_factory.mktemp("tail") / "log"
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    path.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail, "_BLOCK", block)
        assert list(lines_from_end(path))[::-1] == text.splitlines()


def test_only_the_end_of_a_long_file_is_read(tmp_path: Path):
    path = tmp_path / "log"
    path.write_text("".join(f"{number:09d}\n" for number in range(20_000)))
    assert last_lines(path, 2) == ["000019998", "000019999"]
    assert list(lines_from_end(path, most_bytes=25)) == ["000019999", "000019998"]


def test_a_file_that_is_not_there_has_no_lines(tmp_path: Path):
    assert last_lines(tmp_path / "none", 5) == []
    assert last_records(tmp_path / "none", "train", 5) == []
    assert first_record(tmp_path / "none") == {}


def test_records_that_a_kill_cut_are_passed_over(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    lines = [{"kind": "start"}, {"kind": "train", "step": 1}, {"kind": "ranks"}, {"kind": "train", "step": 2}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"kind": "train", "st')
    assert [one["step"] for one in last_records(path, "train", 5)] == [1, 2]
    assert [one["step"] for one in last_records(path, "train", 1)] == [2]
    assert first_record(path) == {"kind": "start"}
