"""Which failure is told, and how."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch.distributed as dist

from kitae.errors import DataError, RecipeError, StoppedError, StorageError, TrainingError
from kitae.launch.failure import LAST_LINES, End, RankBugError, last_lines, result_of
from kitae.launch.order import Launch
from kitae.launch.outcome import Outcome, outcome_of
from kitae.recipe.base import FieldError

LAUNCH = Launch(3, 1, "cpu", 60.0, Path("logs"))


def end(
    rank: int, outcome: Outcome | None = None, code: int = 0, at: int = 0, *, here: bool = False, pid: int = 1
) -> End:
    return End(rank, pid * (100 + rank), code, outcome, here, at)


def error(message: str, at: int, kind: str = "DataError") -> Outcome:
    return Outcome("error", message, kind, at_ns=at)


def lost(at: int) -> Outcome:
    return Outcome("bug", "RuntimeError: Connection closed by peer", lost_peer=True, at_ns=at)


DONE = Outcome("finished")
DEAD = "rank 1 (process 101)"


def test_all_that_finish_give_nothing():
    assert result_of([end(0, DONE), end(1, DONE)], LAUNCH) is None


def test_a_stop_is_told_as_rank_0_tells_it():
    stops = [Outcome("stopped", f"stopped, says {rank}", "StoppedError") for rank in (0, 1)]
    result = result_of([end(0, stops[0]), end(1, stops[1])], LAUNCH)
    assert isinstance(result, StoppedError)
    assert str(result) == "stopped, says 0"


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ([end(0, error("b", 9)), end(1, error("a", 5)), end(2, lost(7))], "rank 1: a"),
        ([end(0, error("a", 5)), end(1, lost(3)), end(2, lost(4))], "a"),
        ([end(0, lost(3)), end(1, code=-9, here=True), end(2, error("a", 5))], "rank 2: a"),
        ([end(0, lost(3)), end(1, code=-6, at=4), end(2, error("a", 5))], f"{DEAD} was killed by SIGABRT;"),
        ([end(0, error("peer", 3)), end(1, code=-9, at=8), end(2, lost(4))], f"{DEAD} was killed by SIGKILL"),
        ([end(0, lost(3)), end(1, code=-11, at=8), end(2, lost(4))], f"{DEAD} was killed by SIGSEGV;"),
        ([end(0, lost(3)), end(1, code=3, at=8), end(2, lost(4))], f"{DEAD} ended with code 3 and said"),
        ([end(0, DONE), end(1, code=0, at=8), end(2, DONE)], f"{DEAD} ended with code 0 and said nothing"),
        ([end(0, code=-9, at=9), end(1, code=1, pid=0, at=9)], "rank 1 (process 0) ended with code 1"),
        ([end(0, lost(3)), end(1, code=-9, here=True), end(2, lost(4))], "RuntimeError: Connection closed"),
    ],
)  # fmt: skip
def test_the_cause_is_told_and_not_what_came_of_it(ends: list[End], message: str):
    assert str(result_of(ends, LAUNCH)).startswith(message)


def test_a_death_is_an_error_of_the_training_with_a_way_out():
    result = result_of([end(0, lost(3)), end(1, code=-9)], LAUNCH)
    assert isinstance(result, TrainingError)
    assert "SIGKILL (out of memory?); the last checkpoint is kept; run the same command again" in str(result)


def test_an_error_that_all_agree_on_is_nobodys():
    ends = [end(rank, error("rank 2: the disk is full", 9 - rank, "StorageError")) for rank in range(3)]
    result = result_of(ends, LAUNCH)
    assert isinstance(result, StorageError)
    assert str(result) == "rank 2: the disk is full"


def test_a_bug_names_the_log_of_its_rank():
    result = result_of([end(0, lost(2)), end(1, Outcome("bug", "KeyError: 'gone'", at_ns=5))], LAUNCH)
    assert isinstance(result, RankBugError)
    assert (str(result), result.log) == ("rank 1: KeyError: 'gone'", Path("logs/rank-1.log"))


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), BrokenPipeError(errno.EPIPE, "Broken pipe")])
def test_what_the_command_line_tells_by_its_kind_stays_so(raised: BaseException):
    assert type(result_of([end(0, outcome_of(raised)), end(1, lost(9))], LAUNCH)) is type(raised)


def test_last_lines(tmp_path: Path):
    log = tmp_path / "rank-1.log"
    assert last_lines(log) == ""
    log.write_text("".join(f"line {number}\n" for number in range(3000)))
    shown = "".join(f"\n  line {number}" for number in range(3000 - LAST_LINES, 3000))
    assert last_lines(log) == f"\nlast lines of {log}:{shown}"


@pytest.mark.parametrize(
    ("raised", "kind", "error_name", "code"),
    [
        (None, "finished", "", 0),
        (StoppedError("x"), "stopped", "StoppedError", 0),
        (DataError("x"), "error", "DataError", 3),
        (FieldError("a.b", "x"), "error", "RecipeError", 2),
        (OSError(errno.ENOSPC, "No space left", "f"), "error", "StorageError", 7),
        (KeyboardInterrupt(), "interrupted", "", 130),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), "unread", "", 141),
        (SystemExit(3), "bug", "", 70),
        (OSError(errno.EACCES, "no"), "bug", "", 70),
    ],
)
def test_outcomes(raised: BaseException | None, kind: str, error_name: str, code: int, tmp_path: Path):
    """The codes are those of the command line; a stop's is 0 for the elastic agent."""
    outcome = outcome_of(raised)
    assert (outcome.kind, outcome.error, outcome.exit_code) == (kind, error_name, code)
    assert not outcome.lost_peer
    outcome.write(tmp_path / "outcome")
    assert Outcome.read(tmp_path / "outcome") == outcome
    assert Outcome.read(tmp_path / "none") is None


def test_what_a_recipe_error_says_is_kept():
    assert outcome_of(RecipeError("a.yaml:3: x")).message == "a.yaml:3: x"


def test_errors_inside_of_collectives_are_known():
    """Where torch.distributed raises, whatever it raises."""
    with pytest.raises(ValueError, match="process group") as inside:
        dist.barrier()
    assert outcome_of(inside.value).lost_peer
    with pytest.raises(KeyError) as outside:
        {}["gone"]
    assert not outcome_of(outside.value).lost_peer
