"""Looks at a run as a whole, once a period, for the rules of the alarms: one process for all nodes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Any

import psutil

from kitae.watch.alarm_book import AlarmBook, Change
from kitae.watch.alarm_rules import Limits, Sight
from kitae.watch.alarms import all_alarms
from kitae.watch.announce import Announcer, Quiet, listeners_of
from kitae.watch.cost import cost_of_run
from kitae.watch.facts import RunFacts
from kitae.watch.reading import Readings
from kitae.watch.samples import latest_samples
from kitae.watch.tail import lines_from_end
from kitae.watch.trends import ON_CPU, Idle, LossTrend, idle_after

SELDOM_S = 30.0
"""How often money and checkpoints are looked at."""
CALM_PERIODS = 3
"""Looks without a finding after which an alarm is over."""
_LINE_BYTES = 1 << 16

Say = Callable[[Mapping[str, Any]], None]


class Lead:
    """Raises the alarms of a run, and tells of them."""

    def __init__(self, run: Path, backend: str, period_s: float, alarms: Mapping[str, Any], say: Say) -> None:
        """`say` takes what the training's process is to hear."""
        self._run, self._backend, self._say = run, backend, say
        self._limits = Limits.of(alarms)
        before = all_alarms(run)
        self._book = AlarmBook(run, CALM_PERIODS * period_s)
        self._quiet = Quiet(60 * float(alarms.get("again_minutes", 60.0)), before)
        self._announcer = Announcer(listeners_of(alarms, os.environ), lambda text: say({"note": text}))
        self._readings, self._loss = Readings(run), LossTrend()
        self._idle: dict[str, Idle] = {}
        self._begun = time()
        self._seldom: dict[str, Any] = {}
        self._seldom_at = 0.0

    def look(self) -> None:
        """See how the run is, and tell what follows."""
        self._tell(self._book.look(self._sight()))

    def end(self, within_s: float) -> None:
        """See it a last time: the attempt is over."""
        self.look()
        self._tell(self._book.end(time()), last=True)
        self._announcer.finish(within_s)

    def _tell(self, changes: list[Change], last: bool = False) -> None:
        """What `last` ends does so with the attempt, which the log tells anyway."""
        told = [(change, self._quiet.is_told(change)) for change in changes]
        for change, aloud in told:
            self._say({"event": change.event, "alarm": change.alarm.as_json(), "aloud": aloud and not last})
        self._announcer.tell(self._run.name, [change for change, aloud in told if aloud])

    def _sight(self) -> Sight:
        now = time()
        self._readings.refresh()
        self._watch_nodes()
        if now - self._seldom_at >= SELDOM_S:
            self._seldom_at, self._seldom = (
                now,
                {**self._money(now), "checkpoint_bytes": newest_bytes(self._run)},
            )
        return Sight(
            now=now,
            limits=self._limits,
            readings=self._readings,
            loss=self._loss.take(self._readings),
            last_line=_last_line(self._run / "metrics.jsonl"),
            idle=self._idle,
            **self._disk(),
            **self._seldom,
        )

    def _watch_nodes(self) -> None:
        """What nodes did since this attempt began; cores that are not those of the training tell nothing."""
        for node, sample in latest_samples(self._run).items():
            if sample.time < self._begun or (sample.source == ON_CPU) != (self._backend == "cpu"):
                continue
            idle = idle_after(self._idle.pop(node, None), sample, self._limits.idle_below)
            if idle is not None:
                self._idle[node] = idle

    def _money(self, now: float) -> dict[str, Any]:
        facts = RunFacts.read(self._run)
        newest = facts.newest or {}
        nodes = max(1, len(newest.get("nodes") or ()))
        price = newest.get("price_per_node_hour") or facts.price_per_node_hour
        return {
            "cost_usd": cost_of_run(facts, "running", now),
            "price_per_hour": None if price is None else nodes * float(price),
            "nodes": nodes,
        }

    def _disk(self) -> dict[str, int]:
        try:
            disk = psutil.disk_usage(str(self._run))
        except OSError:
            return {}
        return {"disk_free_bytes": disk.free, "disk_total_bytes": disk.total}


def newest_bytes(run: Path) -> int:
    """Bytes of the run's newest checkpoint; 0 where there is none."""
    newest = max((run / "checkpoints").glob("step-*"), default=None, key=lambda path: path.name)
    total = 0
    for path in newest.rglob("*") if newest is not None else ():
        with suppress(OSError):
            total += path.stat().st_size
    return total


def _last_line(path: Path) -> Mapping[str, Any]:
    """The last whole record of a file of JSON lines."""
    for line in lines_from_end(path, _LINE_BYTES):
        try:
            record = json.loads(line)
        except ValueError:
            continue  # half-written
        return record if isinstance(record, dict) else {}
    return {}
