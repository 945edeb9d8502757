"""Ranks as real processes: what they are told, how they fail, and that none is left."""

from __future__ import annotations

import ast
import multiprocessing
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from ranks import PRELOADED

from kitae.errors import DataError, KitaeError, StorageError, TrainingError
from kitae.launch import watchdog
from kitae.launch.agent import Agent
from kitae.launch.local import launch_ranks
from kitae.launch.order import Launch


def launch(folder: Path, timeout_s: float = 60.0, tp_size: int = 1) -> Launch:
    return Launch(2, tp_size, "cpu", timeout_s, folder / "logs", "attempt 3")


def workers() -> list[psutil.Process]:
    """Ranks of this process that are still there."""
    return [one for one in psutil.Process().children() if "kitae.launch.worker" in " ".join(one.cmdline())]


def failure(folder: Path, how: str, timeout_s: float = 60.0) -> KitaeError:
    with pytest.raises(KitaeError) as raised:
        launch_ranks(
            "rank_works:fail", {"folder": str(folder), "rank": 1, "how": how}, launch(folder, timeout_s)
        )
    assert workers() == []
    assert not any(psutil.pid_exists(int(note.read_text())) for note in folder.glob("here-*"))
    return raised.value


def test_two_launches_in_the_same_second_both_end(tmp_path: Path, capfd: pytest.CaptureFixture):
    """T45: different ports; rank 0 has the terminal, rank 1 its log, and nothing else is printed."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(launch_ranks, "rank_works:add", {"folder": str(folder)}, launch(folder, tp_size=size))
            for folder, size in zip(folders, (1, 2), strict=True)
        ]
        for one in both:
            one.result()
    facts = [[ast.literal_eval((folder / f"here-{n}").read_text()) for n in (0, 1)] for folder in folders]
    assert [[fact[:3] for fact in facts[0]], [fact[:3] for fact in facts[1]]] == [
        [(3.0, (0, 1), (0,)), (3.0, (0, 1), (1,))],
        [(3.0, (0,), (0, 1)), (3.0, (1,), (0, 1))],
    ]
    assert len({fact[3] for pair in facts for fact in pair}) == 2
    output = capfd.readouterr()
    assert (output.out, output.err) == ("rank 0 prints\n" * 2, "rank 0 warns\n" * 2)
    lines = (folders[1] / "logs/rank-1.log").read_text().splitlines()
    assert lines[0].startswith("---- ")
    assert "attempt 3: rank 1 of 2 (data-parallel rank 0, tensor-parallel rank 1), process" in lines[0]
    # Some versions of torch say on standard output that they have connected.
    assert sorted(line for line in lines[1:] if "Gloo" not in line) == ["rank 1 prints", "rank 1 warns"]
    assert workers() == []


def test_the_first_error_is_raised_as_what_it_was(tmp_path: Path, capfd: pytest.CaptureFixture):
    """Not the broken connection that rank 0 sees."""
    error = failure(tmp_path, "error")
    assert type(error) is DataError
    assert str(error) == "rank 1: row 7 is broken"
    output = capfd.readouterr()
    assert (output.out, output.err) == ("", "")
    assert "DataError: row 7 is broken" in (tmp_path / "logs/rank-1.log").read_text()


def start_closed(folder: Path) -> None:
    """What a scheduler that closes all streams starts; how it ended goes into a file."""
    for number in range(3):
        os.close(number)
    sys.stdin = sys.stdout = sys.stderr = None
    try:
        launch_ranks("rank_works:fail", {"folder": str(folder), "rank": 1, "how": "error"}, launch(folder))
    except KitaeError as error:
        (folder / "ending").write_text(f"{type(error).__name__}: {error}")
    os._exit(0)


def test_an_error_is_told_though_standard_streams_are_closed(tmp_path: Path):
    """A log with the number of one of them would be taken for it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=start_closed, args=(tmp_path,))
    process.start()
    process.join(60)
    assert (tmp_path / "ending").read_text() == "DataError: rank 1: row 7 is broken"
    assert "DataError: row 7 is broken" in (tmp_path / "logs/rank-1.log").read_text()


def test_a_killed_rank_is_named(tmp_path: Path):
    message = str(failure(tmp_path, "kill"))
    pid = (tmp_path / "here-1").read_text()
    assert message.startswith(f"rank 1 (process {pid}) was killed by SIGKILL (out of memory?); ")
    assert "run the same command again" in message
    assert message.endswith("\n  the last words")


def test_a_rank_that_is_stuck_is_named(tmp_path: Path):
    """Neither has moved; the stopped one is that which the other waits for."""
    error = failure(tmp_path, "freeze", timeout_s=2.0)
    assert isinstance(error, TrainingError)
    pid = (tmp_path / "here-1").read_text()
    assert (
        f"no rank has moved for 2 s (parallel.timeout_s); all wait for rank 1 (process {pid}, data-parallel "
        "rank 1, tensor-parallel rank 0, stopped, in step 7)"
    ) in str(error)
    assert str(error).endswith("\n  the last words")
    # The one that can still run says where it waits.
    assert "in barrier" in (tmp_path / "logs/rank-0.log").read_text()


def test_files_in_the_current_folder_are_not_taken_for_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Ranks find what the process that starts them finds, and nothing else."""
    for name in ("signal", "random", "kitae"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    launch_ranks("rank_works:add", {"folder": str(tmp_path)}, launch(tmp_path))
    assert (tmp_path / "here-1").exists()


def test_ranks_that_hang_before_their_first_word_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Such as by a file system that does not answer while Python starts."""
    (tmp_path / "sitecustomize.py").write_text("import os, time\nif 'RANK' in os.environ: time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(watchdog, "START_S", 1.0)
    with pytest.raises(TrainingError, match=r"rank 0 .* in its start.* and rank 1 .* in its start"):
        launch_ranks("rank_works:add", {"folder": str(tmp_path)}, launch(tmp_path, timeout_s=1.0))
    assert workers() == []


def test_processes_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(self: Agent) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(Agent, "_launch", refuse)
    with pytest.raises(TrainingError, match=r"could not be started: .* Resource temporarily unavailable"):
        launch_ranks("rank_works:add", {"folder": str(tmp_path)}, launch(tmp_path))


def test_logs_that_cannot_be_written_are_named(tmp_path: Path):
    (tmp_path / "logs").write_text("in the way")
    with pytest.raises(StorageError, match="logs: File exists"):
        launch_ranks("rank_works:add", {"folder": str(tmp_path)}, launch(tmp_path))
