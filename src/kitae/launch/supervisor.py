"""Looks after ranks: passes stops on, ends the others when one has failed, names those that are stuck."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kitae.errors import StoppedError, TrainingError
from kitae.launch.failure import AGAIN, last_lines, result_of
from kitae.launch.order import Launch, Order
from kitae.launch.rank import Rank
from kitae.launch.stops import Stops
from kitae.launch.watchdog import Sight, Watchdog

ENDING_S = 5.0
"""After a rank has failed, how long the others may take to end by themselves before they are killed."""
STACK_S = 1.0
"""How long stuck ranks are given to write their stacks into their logs."""


class Supervisor:
    """Is called again and again while the agent's thread waits for the ranks."""

    def __init__(self, order: Order, stops: Stops) -> None:
        self._launch = order.launch
        self._stops = stops
        self._ranks = [Rank(number, order) for number in range(order.launch.world_size)]
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

    def result(self, exit_codes: Mapping[int, int]) -> BaseException | None:
        """What to raise, now that all have ended; without a code a rank has ended with 0."""
        if self._verdict is not None:
            return self._verdict
        ends = [rank.end(exit_codes.get(rank.number, 0)) for rank in self._ranks]
        result = result_of(ends, self._launch)
        if result is None and self._stops.asked is not None:
            name = self._stops.asked.name
            return StoppedError(f"stopped by {name} after the last step; run the same command again to go on")
        return result


def stuck_error(guilty: list[Sight], launch: Launch, lines: str) -> TrainingError:
    """What is said when no rank moves; `lines` are further ones."""
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
