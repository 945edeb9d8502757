"""Stop signals to the process that started the ranks, and to one of them; and its death."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
from ranks import PRELOADED

from kitae.launch.order import Launch
from kitae.storage.lock import exclusive

DEADLINE_S = 60.0


def start(folder: Path, deaf: bool) -> None:
    """The life of the starting process; how it ended goes into files, and its output, too."""
    from kitae.launch.local import launch_ranks

    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    tempfile.tempdir = str(folder)  # a start that is killed leaves its files
    try:
        launch_ranks(
            "rank_works:train",
            {"folder": str(folder), "deaf": deaf},
            Launch(2, 2, "cpu", DEADLINE_S, folder / "logs"),
        )
    except BaseException as error:
        (folder / "ending").write_text(f"{type(error).__name__} {getattr(error, 'exit_code', None)}: {error}")
    os._exit(0)


@contextmanager
def started(folder: Path, deaf: bool = False) -> Iterator[BaseProcess]:
    """A process with two ranks; none may be left behind it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=start, args=(folder, deaf))
    process.start()
    assert process.pid is not None
    until(lambda: len(ranks_of(process.pid)) == 2)
    ranks = ranks_of(process.pid)
    try:
        yield process
        process.join(DEADLINE_S)
        until(lambda: not any(alive(rank) for rank in ranks))
    finally:
        process.kill()
        for rank in ranks:
            if rank.is_running():
                rank.kill()


def ranks_of(pid: int | None) -> list[psutil.Process]:
    found = psutil.Process(pid).children()
    return [one for one in found if one.is_running() and "kitae.launch.worker" in " ".join(one.cmdline())]


def alive(process: psutil.Process) -> bool:
    """Whether it can still do anything; who starts the tests may not collect orphans that have ended."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.02)


def ending(folder: Path) -> tuple[str, list[str]]:
    """How the start ended, and the steps that the ranks saved."""
    return (folder / "ending").read_text(), [(folder / f"saved-{rank}").read_text() for rank in (0, 1)]


def test_a_signal_to_one_rank_that_has_hardly_begun_stops_all(tmp_path: Path):
    """T43: in warm-up, before there is a process group."""
    with started(tmp_path) as process:
        ranks_of(process.pid)[1].send_signal(signal.SIGTERM)
    message, saved = ending(tmp_path)
    assert message == "StoppedError 75: stopped by SIGTERM after step 1"
    assert saved == ["1", "1"]
    assert (tmp_path / "output").read_text() == ""


def test_a_signal_is_passed_on_and_all_save_the_same_step(tmp_path: Path):
    with started(tmp_path) as process:
        until(lambda: (tmp_path / "trains-1").exists())
        os.kill(process.pid, signal.SIGTERM)
    message, saved = ending(tmp_path)
    assert saved[0] == saved[1]
    assert message == f"StoppedError 75: stopped by SIGTERM after step {saved[0]}"
    assert (tmp_path / "output").read_text() == "\nSIGTERM: saving as soon as the work at hand is done\n"


def test_a_second_interrupt_ends_everything_at_once(tmp_path: Path):
    with started(tmp_path, deaf=True) as process:
        until(lambda: (tmp_path / "trains-1").exists())
        os.kill(process.pid, signal.SIGINT)
        until(lambda: "SIGINT" in (tmp_path / "output").read_text())
        os.kill(process.pid, signal.SIGINT)
    assert (tmp_path / "ending").read_text() == "KeyboardInterrupt None: "


def test_ranks_end_with_the_process_that_started_them(tmp_path: Path):
    """And what it leaves goes with the next start, but not what somebody works with."""
    with started(tmp_path) as process:
        until(lambda: (tmp_path / "trains-1").exists())
        process.kill()
    assert not (tmp_path / "ending").exists()
    (left,) = tmp_path.glob("kitae-ranks-*")
    busy = shutil.copytree(left, left.with_name(f"{left.name}-busy"))
    with exclusive(busy / "lock"), started(tmp_path) as process:
        until(lambda: not left.exists())
        os.kill(process.pid, signal.SIGTERM)
    assert [*tmp_path.glob("kitae-ranks-*")] == [busy]
