"""Ranks on this machine: started, watched, stopped together, and none left behind."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from kitae.errors import KitaeError, StoppedError, StorageError, TrainingError
from kitae.launch.agent import Agent
from kitae.launch.failure import AGAIN, End, last_lines, result_of
from kitae.launch.heartbeat import Beat, HeartbeatReader, make_heartbeat
from kitae.launch.order import Launch, Order
from kitae.launch.outcome import Outcome
from kitae.launch.stops import Stops
from kitae.launch.watchdog import Sight, Watchdog, storage_bytes

LOOK_S = 0.2
"""How often the ranks are looked at."""
ENDING_S = 5.0
"""After a rank has failed, how long the others may take to end by themselves before they are killed."""
STACK_S = 1.0
"""How long stuck ranks are given to write their stacks into their logs."""


def launch_ranks(entry: str, arguments: Mapping[str, Any], launch: Launch) -> None:
    """Call `entry` (`module:function`, with `mesh` and JSON arguments by name) in every rank, and wait.

    Rank 0 has the terminal; the others write to their logs. Returns when the function has returned in all
    ranks. Raises the first failure as the `KitaeError` that it was (`RankBugError` for what nobody foresaw,
    `TrainingError` for a rank that died or got stuck), `StoppedError` after a stop signal, which is passed on
    to the ranks, and KeyboardInterrupt after a second Ctrl-C, which ends them at once.
    """
    with _folder() as folder, Stops() as stops:
        order = Order(launch, entry, arguments, os.getpid(), folder, list(sys.path))
        _lay_out(order)
        agent = Agent(order)
        supervisor = _Supervisor(order, stops)
        agent.start()
        try:
            while agent.is_alive():
                agent.join(LOOK_S)
                supervisor.look()
        finally:
            while agent.is_alive():
                supervisor.kill()
                agent.join(LOOK_S)
        result = supervisor.result(agent)
        if result is not None:
            _show_cursor()
            raise result


@contextmanager
def _folder() -> Iterator[Path]:
    """Where ranks leave their heartbeats and outcomes."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="kitae-ranks-", ignore_cleanup_errors=True)
    except OSError as error:
        raise StorageError(f"cannot make a temporary folder: {error.strerror}; set TMPDIR") from error
    with folder as name:
        yield Path(name)


def _lay_out(order: Order) -> None:
    """Make every file that the ranks need, so that it is said here when one cannot be made."""
    try:
        order.launch.logs.mkdir(parents=True, exist_ok=True)
        for rank in range(order.launch.world_size):
            make_heartbeat(order.heartbeat(rank))
            order.launch.log(rank).open("a").close()
        order.write()
    except OSError as error:
        raise StorageError(f"cannot write {error.filename}: {error.strerror}") from error


def _show_cursor() -> None:
    """Give the terminal its cursor back, which a display that was killed has hidden."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h")


class _Rank:
    """A rank as seen from here."""

    def __init__(self, number: int, order: Order) -> None:
        self.number = number
        self._reader = HeartbeatReader(order.heartbeat(number))
        self._outcome_path = order.outcome(number)
        self._process: psutil.Process | None = None
        self._told = False
        self.pid = 0
        self.gone_ns: int | None = None
        """When its end was noticed."""
        self.killed = False
        """Whether that was us."""

    def look(self) -> Sight | None:
        """What it does now; None when it has ended."""
        beat = self._reader.read()
        self._meet(beat)
        if self._process is None:
            return None if self.gone_ns else Sight(self.number, beat, "starting", 0)
        try:
            state = self._process.status()
        except psutil.Error:
            state = psutil.STATUS_ZOMBIE
        if state in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            self.gone_ns = self.gone_ns or time.monotonic_ns()
            return None
        return Sight(self.number, beat, state, storage_bytes(self._process))

    def _meet(self, beat: Beat) -> None:
        """Find the process once it has said its number."""
        if self.pid == 0 and beat.pid != 0:
            self.pid = beat.pid
            try:
                self._process = psutil.Process(self.pid)
            except psutil.NoSuchProcess:
                self.gone_ns = time.monotonic_ns()

    def outcome(self) -> Outcome | None:
        """Its own word on its end."""
        return Outcome.read(self._outcome_path)

    @property
    def failed(self) -> bool:
        """Whether it has ended, and not as planned."""
        if self.gone_ns is None:
            return False
        outcome = self.outcome()
        return outcome is None or not outcome.orderly

    def stop(self, number: signal.Signals) -> None:
        """Pass a stop signal on, once."""
        if self._process is not None and not self._told:
            self._told = True
            self._send(number)

    def ask_for_stack(self) -> None:
        """Let it write the stack of every thread to its log."""
        if self._reader.read().ready:
            self._send(signal.SIGUSR2)

    def kill(self) -> None:
        """End it at once."""
        if self.look() is not None and self._process is not None:
            self.killed = True
            self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        assert self._process is not None
        with suppress(psutil.Error):  # it has ended; psutil never signals another process of that number
            self._process.send_signal(number)

    def end(self, exit_code: int) -> End:
        """How it ended."""
        noticed = self.gone_ns or time.monotonic_ns()
        return End(self.number, self.pid, exit_code, self.outcome(), self.killed, noticed)


class _Supervisor:
    """Looks after the ranks while the agent's thread waits for them."""

    def __init__(self, order: Order, stops: Stops) -> None:
        self._launch = order.launch
        self._stops = stops
        self._ranks = [_Rank(number, order) for number in range(order.launch.world_size)]
        self._watchdog = Watchdog(order.launch.timeout_s)
        self._kill_at: float | None = None
        self._verdict: BaseException | None = None
        """What the launch ends with, whatever the ranks say."""

    def look(self) -> None:
        """See how all are, and do what is due."""
        sights = [sight for rank in self._ranks if (sight := rank.look()) is not None]
        if self._stops.asked is not None:
            for rank in self._ranks:
                rank.stop(self._stops.asked)
        if self._stops.at_once:
            self._verdict = KeyboardInterrupt()
            self._end_within(0.0)
        if any(rank.failed for rank in self._ranks):
            self._end_within(ENDING_S)
        if self._kill_at is None:
            self._blame(self._watchdog.look(sights))
        elif time.monotonic() >= self._kill_at:
            self.kill()

    def _end_within(self, seconds: float) -> None:
        at = time.monotonic() + seconds
        self._kill_at = at if self._kill_at is None else min(at, self._kill_at)

    def kill(self) -> None:
        """End all that are left."""
        for rank in self._ranks:
            rank.kill()

    def _blame(self, guilty: list[Sight]) -> None:
        if not guilty:
            return
        lines = last_lines(self._launch.log(guilty[0].rank))
        self._verdict = stuck_error(guilty, self._launch, lines)
        for rank in self._ranks:
            rank.ask_for_stack()
        self._end_within(STACK_S)

    def result(self, agent: Agent) -> BaseException | None:
        """What to raise, now that all have ended."""
        if self._verdict is not None:
            return self._verdict
        if agent.error is not None:
            return TrainingError(f"the processes could not be started: {agent.error}")
        ends = [rank.end(agent.exit_codes.get(rank.number, 0)) for rank in self._ranks]
        result = result_of(ends, self._launch)
        if result is None and self._stops.asked is not None:
            name = self._stops.asked.name
            return StoppedError(f"stopped by {name} after the last step; run the same command again to go on")
        return result


def stuck_error(guilty: list[Sight], launch: Launch, lines: str) -> KitaeError:
    """What is said when no rank moves."""
    who = " and ".join(
        f"rank {sight.rank} (process {sight.beat.pid}, {launch.place(sight.rank)}, {sight.state}, "
        f"in {sight.beat.where or 'its start'})"
        for sight in guilty
    )
    waited = "all wait for" if len(guilty) < launch.world_size else "none can be told from the others:"
    return TrainingError(
        f"no rank has moved for {launch.timeout_s:g} s (parallel.timeout_s); {waited} {who}; all were ended, "
        f"and their stacks are in {launch.logs}; {AGAIN}{lines}"
    )
