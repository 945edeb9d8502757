"""Sides of a comparison: processes that wait for a line, do the work of a round, and answer with a line.

Both ends are here: `Side` is what the measuring program holds, `say` what the process of a side answers with.
A side can be several ranks, each a process; they work at the same time and their round takes as long as the
slowest.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ANSWER = "answer "
"""Begins the lines that are meant for the process that started this one; libraries print others."""
LOSS_TOLERANCE = 2e-3


def say(answer: dict[str, Any]) -> None:
    """Answer the process that started this one."""
    print(ANSWER + json.dumps(answer), flush=True)


class Side:
    """One side, which runs `program NAME WORK` in each of its ranks."""

    def __init__(
        self, name: str, program: str, work: str, *, ranks: int = 1, threads: int | None = None
    ) -> None:
        self.name = name
        self.rounds: list[list[dict[str, Any]]] = []
        """Of each round that counts, the ranks' answers."""
        command = [sys.executable, str(Path(__file__).with_name(program)), name, work]
        port = _free_port()
        self._ranks = [
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=_environment(rank, ranks, threads, port),
            )
            for rank in range(ranks)
        ]

    def wait_until_ready(self) -> None:
        """Let all ranks start; those of no other side are to work meanwhile."""
        assert self._answers() == [{"ready": True}] * len(self._ranks)

    def round(self, counted: bool) -> None:
        """Do the work of one round."""
        for rank in self._ranks:
            assert rank.stdin is not None
            rank.stdin.write("go\n")
            rank.stdin.flush()
        answers = self._answers()
        if counted:
            self.rounds.append(answers)

    def end(self) -> None:
        """Stop the processes."""
        for rank in self._ranks:
            rank.kill()
            rank.wait()

    def seconds(self) -> list[float]:
        """Of each round, those of the slowest rank."""
        return [max(answer["seconds"] for answer in answers) for answers in self.rounds]

    def cpu_seconds(self) -> list[float]:
        """Of each round, those of all ranks together."""
        return [sum(answer["cpu_seconds"] for answer in answers) for answers in self.rounds]

    def losses(self) -> list[float]:
        """Of each round, the mean over the ranks: some sides know the loss of their own rows alone."""
        return [statistics.mean(answer["loss"] for answer in answers) for answers in self.rounds]

    def peak_bytes(self) -> float:
        """Most memory that any rank has held."""
        return max(answer["peak_bytes"] for answer in self.rounds[-1])

    def _answers(self) -> list[dict[str, Any]]:
        return [self._answer(rank) for rank in self._ranks]

    def _answer(self, rank: subprocess.Popen[str]) -> dict[str, Any]:
        assert rank.stdout is not None
        for line in rank.stdout:
            if line.startswith(ANSWER):
                found: dict[str, Any] = json.loads(line.removeprefix(ANSWER))
                return found
        raise SystemExit(f"{self.name} ended with code {rank.wait()}")


def take_turns(sides: Sequence[Side], rounds: int, warmup_rounds: int) -> None:
    """Run rounds of all sides, one side at a time, in an order that changes, and end them."""
    try:
        for side in sides:
            side.wait_until_ready()
        for number in range(warmup_rounds + rounds):
            turn = number % len(sides)
            for side in (*sides[turn:], *sides[:turn]):
                side.round(counted=number >= warmup_rounds)
    finally:
        for side in sides:
            side.end()


def check_losses(sides: Sequence[Side]) -> None:
    """All sides have to have trained the same."""
    expected = sides[0].losses()
    for side in sides:
        for ours, theirs in zip(expected, side.losses(), strict=True):
            assert abs(ours - theirs) <= LOSS_TOLERANCE, f"{side.name}: loss {theirs}, {ours} expected"


def ratios(values: Sequence[float], others: Sequence[float]) -> list[float]:
    """Round by round."""
    return [value / other for value, other in zip(values, others, strict=True)]


def spread(values: Sequence[float], digits: int) -> str:
    """Median with its median absolute deviation and range."""
    middle = statistics.median(values)
    deviation = statistics.median(abs(value - middle) for value in values)
    low, high = min(values), max(values)
    return f"{middle:,.{digits}f} ± {deviation:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def _environment(rank: int, ranks: int, threads: int | None, port: int) -> dict[str, str]:
    """As torchrun sets it, where there are several ranks."""
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1"}
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1"}
    place |= {"MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    own = {"OMP_NUM_THREADS": threads} if threads else {}
    own |= place if ranks > 1 else {}
    return {**os.environ, **quiet, **{name: str(value) for name, value in own.items()}}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
