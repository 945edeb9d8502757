"""What a rank wrote in one attempt, and the lines of its error."""

from __future__ import annotations

from pathlib import Path

from recorded_runs import write_log

from kitae.watch.attempt_log import around, last_words, section

ATTEMPTS = [
    {"started": "2026-11-30T19:00:00+00:00"},
    {"started": "2026-11-30T19:10:00+00:00"},
    {"started": "2026-11-30T19:20:00+00:00"},
]
FIRST_RANK = [
    "2026-11-30T19:00:01+00:00 step 1/9",
    "Traceback (most recent call last):",
    "ValueError: of the first attempt",
    "2026-11-30T19:10:01+00:00 going on",
    "2026-11-30T19:10:02+00:00 step 2/9",
    "DataError: of the second attempt",
    "2026-11-30T19:20:01+00:00 going on again",
]
OTHER_RANK = [
    "---- 2026-11-30T19:00:02+0000 attempt 1: rank 1 of 2 (x), process 7",
    "first",
    "---- 2026-11-30T19:10:02+0000 attempt 2: rank 1 of 2 (x), process 8",
    "second",
]
TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "/x/kitae/launch/worker.py", line 101, in _work',
    "    _entry(order.entry)(mesh=mesh)",
]
IN_GROUP = ['  File "/x/kitae/backend/group.py", line 172, in wait', "    self.work.wait()"]
IN_MODEL = ['  File "/x/kitae/model/blocks.py", line 17, in forward', "    return {}[name]"]
GONE = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer"


def test_the_section_of_an_attempt_in_the_first_ranks_log(tmp_path: Path):
    log = write_log(tmp_path, 0, *FIRST_RANK)
    assert section(log, 1, ATTEMPTS) == FIRST_RANK[:3]
    assert section(log, 2, ATTEMPTS) == FIRST_RANK[3:6]
    assert section(log, 3, ATTEMPTS) == FIRST_RANK[6:]


def test_the_section_of_an_attempt_in_another_ranks_log(tmp_path: Path):
    log = write_log(tmp_path, 1, *OTHER_RANK)
    assert section(log, 1, ATTEMPTS) == OTHER_RANK[:2]
    assert section(log, 2, ATTEMPTS) == OTHER_RANK[2:]
    assert section(log, 3, ATTEMPTS) == []


def test_an_error_of_its_own_is_told_from_a_lost_peer():
    own = last_words(["step 1", *TRACEBACK, *IN_MODEL, "KeyError: 'rope'", "a thread says goodbye"])
    assert (own.kind, own.message) == (0, "KeyError: 'rope'")
    assert own.lines == (*TRACEBACK, *IN_MODEL, "KeyError: 'rope'")
    lost = last_words(["step 1", *TRACEBACK, *IN_GROUP, GONE])
    assert (lost.kind, lost.message) == (2, GONE)


def test_an_error_that_was_foreseen_has_no_traceback():
    words = last_words(["DataError: row 7 is broken"])
    assert (words.kind, words.message, words.lines) == (
        0,
        "DataError: row 7 is broken",
        ("DataError: row 7 is broken",),
    )


def test_a_crash_begins_its_dump():
    words = last_words(["x", "Fatal Python error: Segmentation fault", "", "Current thread 0x1:", "  File"])
    assert (words.kind, words.message) == (0, "Fatal Python error: Segmentation fault")
    assert len(words.lines) == 4


def test_a_rank_that_said_nothing():
    assert last_words(["step 1", "the word Error: in the middle of a line"]).kind == 1
    assert last_words([]).kind == 1


def test_lines_around_a_message():
    lines = ["a", "b", *TRACEBACK, *IN_MODEL, "KeyError: 'rope'", "later"]
    assert around(lines, "KeyError: 'rope'", 2) == tuple(lines[2:-1])
    assert around(lines, "KeyError: 'rope'", 7) == tuple(lines[1:-1])
    assert around(lines, "not there", 2) == ("KeyError: 'rope'", "later")
