"""A rank, as the process that started it sees and ends it."""

from __future__ import annotations

import signal
import time
from contextlib import suppress

import psutil

from kitae.launch.failure import End
from kitae.launch.heartbeat import Beat, HeartbeatReader
from kitae.launch.order import Order
from kitae.launch.outcome import Outcome
from kitae.launch.watchdog import Sight, storage_bytes


class Rank:
    """One rank, from its start to its end."""

    def __init__(self, number: int, order: Order) -> None:
        self.number = number
        self._reader = HeartbeatReader(order.heartbeat(number))
        self._outcome_path = order.outcome(number)
        self._order = str(order.path)
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
            self.gone_ns = self.gone_ns or time.time_ns()
            return None
        return Sight(self.number, beat, state, storage_bytes(self._process))

    def _meet(self, beat: Beat) -> None:
        """Find the process once it has said its number."""
        if self.pid == 0 and beat.pid != 0:
            self.pid = beat.pid
            try:
                self._process = psutil.Process(self.pid)
            except psutil.NoSuchProcess:
                self.gone_ns = time.time_ns()

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
        """End it at once, also when it has not said its number yet."""
        if self.look() is None:
            return
        self._process = self._process or self._find()
        if self._process is not None:
            self.pid, self.killed = self._process.pid, True
            self._send(signal.SIGKILL)

    def _find(self) -> psutil.Process | None:
        """Look among the children for the one that was started as this rank."""
        for one in psutil.Process().children():
            with suppress(psutil.Error):  # it ends meanwhile
                if self._order in one.cmdline() and one.environ().get("RANK") == str(self.number):
                    return one
        return None

    def _send(self, number: signal.Signals) -> None:
        assert self._process is not None
        with suppress(psutil.Error):  # it has ended; psutil never signals another process of that number
            self._process.send_signal(number)

    def end(self, exit_code: int) -> End:
        """How it ended."""
        noticed = self.gone_ns or time.time_ns()
        return End(self.number, self.pid, exit_code, self.outcome(), self.killed, noticed)
