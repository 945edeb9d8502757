"""Logs that grow, and are followed until the run ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_runs import attempt, write_run

from kitae.launch.slurm.parse import JobState
from kitae.watch.facts import RunFacts
from kitae.watch.log_view import Growing, follow, summary
from kitae.watch.status import Status, status_of


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=5), max_size=8), st.integers(0, 5))
def test_lines_come_once_and_whole_wherever_writes_are_cut(tmp_path_factory, pieces: list[bytes], count: int):
    path = tmp_path_factory.mktemp("log") / "log"
    log, lines = Growing(path, 100), list[str]()
    for piece in pieces:
        with path.open("ab") as file:
            file.write(piece.replace(b"\x00", b"\n"))
        lines += log.lines()
    content = b"".join(pieces).replace(b"\x00", b"\n")
    *whole, rest = content.split(b"\n")
    assert lines == [line.decode(errors="replace") for line in whole]
    assert log.rest() == rest.decode(errors="replace")


def test_only_the_last_lines_of_what_is_there(tmp_path: Path):
    path = tmp_path / "log"
    path.write_text("a\nb\nc\nhalf")
    log = Growing(path, 2)
    assert list(log.lines()) == ["b", "c"]
    with path.open("a") as file:
        file.write(" a line\n")
    assert list(log.lines()) == ["half a line"]
    assert list(Growing(path, 0).lines()) == []


def test_a_log_that_is_cut_or_replaced_is_read_anew(tmp_path: Path):
    path = tmp_path / "log"
    path.write_text("one\ntwo\n")
    log = Growing(path, 9)
    assert list(log.lines()) == ["one", "two"]
    path.write_text("new\n")
    assert list(log.lines()) == ["new"]
    other = tmp_path / "other"
    other.write_text("replaced, and longer\n")
    other.replace(path)
    assert list(log.lines()) == ["replaced, and longer"]


def test_a_log_that_is_not_there_yet(tmp_path: Path):
    log = Growing(tmp_path / "log", 9)
    assert list(log.lines()) == []
    (tmp_path / "log").write_text("begun\n")
    assert list(log.lines()) == ["begun"]


def statuses(tmp_path: Path, *parts: tuple[dict[str, object] | None, str]) -> list[Status]:
    """A run seen several times: its attempt, and the state of its job."""
    found = []
    for number, (record, state) in enumerate(parts):
        run = write_run(
            tmp_path / f"{number}/a", [] if record is None else [record], steps=2, jobs=[("train", 3)]
        )
        job = JobState(3, "a", state, "Resources", "n1", 1, 0.0, 0.0)
        found.append(status_of(RunFacts.read(run), {3: job}, lambda attempt: "elsewhere", 0.0))
    return found


def test_following_goes_through_attempts_and_queues_and_ends_with_the_run(tmp_path: Path):
    """The job runs, is queued again, runs again, and the run ends: each time something is written."""
    seen = statuses(
        tmp_path,
        (None, "PENDING"),
        (attempt(), "RUNNING"),
        (attempt("stopped", why="the time limit is near"), "PENDING"),
        (attempt(), "RUNNING"),
        (attempt("finished", last="train"), "COMPLETED"),
    )
    log = tmp_path / "log"
    written, told, clock = list[str](), list[str](), iter(range(0, 1000, 20))

    def write(number: int) -> Callable[[], Status]:
        def look() -> Status:
            status = seen[min(look.calls, len(seen) - 1)]  # type: ignore[attr-defined]
            with log.open("a") as file:
                file.write(f"line {look.calls}\n")  # type: ignore[attr-defined]
            look.calls += 1  # type: ignore[attr-defined]
            return status

        look.calls = number  # type: ignore[attr-defined]
        return look

    last = follow(
        Growing(log, 9),
        write(0),
        written.append,
        told.append,
        lambda seconds: None,
        lambda: float(next(clock)),
    )
    assert last.state == "done"
    assert written == [f"line {number}" for number in range(5)]
    assert told == [
        "a: waiting: train, job 3: for nodes: too few are free",
        "a: running",
        "a: waiting: train, job 3: for nodes: too few are free",
        "a: running",
        "a: done: train",
    ]


def test_the_last_words_of_an_ended_run_need_no_line_end(tmp_path: Path):
    (status,) = statuses(tmp_path, (attempt("failed", why="no\nmore"), "FAILED"))
    log = tmp_path / "log"
    log.write_text("a\nkilled in the mid")
    written, told = list[str](), list[str]()
    follow(Growing(log, 9), lambda: status, written.append, told.append)
    assert written == ["a", "killed in the mid"]
    assert told == [summary(status)] == ["a: failed: no"]
