"""`kitae top` in a terminal: here, and through a real sshd on a head node."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from sshd import SSHD, sshd
from top_scenes import write_training

from kitae.launch.ssh.remote import Remote, write_remote

pytestmark = pytest.mark.system
SOURCE = Path(__file__).parents[2] / "src"
KITAE = [sys.executable, "-m", "kitae"]
LIMIT_S = 90.0


class Terminal:
    """A program in a pseudo-terminal of 100 x 30."""

    def __init__(self, words: Sequence[str], folder: Path, **variables: str) -> None:
        self._leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TERM": "xterm-256color", **variables}
        self.process = subprocess.Popen(
            words, cwd=folder, env=environment, stdin=follower, stdout=follower, stderr=follower,
            preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
        )  # fmt: skip
        os.close(follower)
        self.said = ""

    def wait_for(self, text: str) -> None:
        end = time.monotonic() + LIMIT_S
        while text not in self.said and time.monotonic() < end:
            if select.select([self._leader], [], [], 1.0)[0]:
                try:
                    self.said += os.read(self._leader, 65536).decode(errors="replace")
                except OSError:  # it has ended
                    break
        assert text in self.said, self.said[-3000:]

    def press(self, keys: str) -> None:
        os.write(self._leader, keys.encode())

    def end(self) -> int:
        with suppress(OSError):
            while block := os.read(self._leader, 65536):
                self.said += block.decode(errors="replace")
        return self.process.wait(LIMIT_S)


@contextmanager
def terminal(words: Sequence[str], folder: Path, **variables: str) -> Iterator[Terminal]:
    one = Terminal(words, folder, **variables)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.wait()


def test_it_is_a_screen_that_ends_with_q(tmp_path: Path):
    """The alternate screen is entered and left; the last tab is the one that was asked for."""
    write_training(tmp_path / "runs/a")
    with terminal([*KITAE, "top", "a"], tmp_path) as screen:
        screen.wait_for("300")
        screen.press("4")
        screen.wait_for("64 ranks")
        screen.press("q")
        assert screen.end() == 0
    assert screen.said.index("\x1b[?1049h") < screen.said.index("\x1b[?1049l")


@pytest.mark.skipif(SSHD is None, reason="needs sshd")
def test_a_run_of_a_head_node_is_shown_there(tmp_path: Path):
    """`ssh -t`: keys go there, the screen comes here, and so does the exit code."""
    there = tmp_path / "there"
    write_training(there / "runs/far")
    home = tmp_path / "home"
    home.mkdir()
    with sshd(tmp_path / "sshd", {"HOME": str(home)}) as server:
        (tmp_path / "runs/far").mkdir(parents=True)
        write_remote(
            tmp_path / "runs/far",
            Remote("head", str(there), "far", sys.executable, sys.executable, str(SOURCE)),
        )
        options = {"KITAE_SSH_OPTIONS": server.options}
        with terminal([*KITAE, "top", "far"], tmp_path, **options) as screen:
            screen.wait_for("300")
            screen.press("2")
            screen.wait_for("64 cores on 2 nodes")
            screen.press("q")
            assert screen.end() == 0
        done = subprocess.run(
            [*KITAE, "top", "far", "--once"], cwd=tmp_path, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE), **options},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "step 300/3,000" in done.stdout
    assert "\x1b" not in done.stdout
