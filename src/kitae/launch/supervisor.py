"""Looks after ranks: passes stops on, ends the others when one has failed, names those that are stuck."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kitae.errors import TrainingError
from kitae.launch.failure import AGAIN, last_lines
from kitae.launch.node_end import NodeEnd
from kitae.launch.order import Launch, Order
from kitae.launch.outcome import outcome_of
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
        self._ranks = [Rank(number, order) for number in order.launch.local_ranks]
        self._watchdog = Watchdog(order.launch.timeout_s, alone=order.launch.nodes == 1)
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

    def end(self, exit_codes: Mapping[int, int]) -> NodeEnd:
        """How all have ended; without a code a rank has ended with 0."""
        verdict = None if self._verdict is None else outcome_of(self._verdict)
        ends = tuple(rank.end(exit_codes.get(rank.number, 0)) for rank in self._ranks)
        return NodeEnd(self._launch.name, ends, verdict)


def stuck_error(guilty: list[Sight], launch: Launch, lines: str) -> TrainingError:
    """What is said when no rank moves; `lines` are further ones."""
    who = " and ".join(
        f"rank {sight.rank} (process {sight.beat.pid}, {launch.place(sight.rank)}, {sight.state}, "
        f"in {sight.beat.where or 'its start'})"
        for sight in guilty
    )
    waited = "all wait for" if len(guilty) < launch.local_size else "none can be told from the others:"
    where = "" if launch.nodes == 1 else f"{launch.name}: "
    return TrainingError(
        f"{where}no rank has moved for {launch.timeout_s:g} s (parallel.timeout_s); {waited} {who}; all were "
        f"ended, and their stacks are in {launch.logs}; {AGAIN}{lines}"
    )
