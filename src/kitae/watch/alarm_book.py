"""Which alarms are active, when they began and ended: kept in `alarms.json` of the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from kitae.stages.files import write_json
from kitae.watch.alarm_rules import OUTLIVE, RULES, Finding, Rule, Sight
from kitae.watch.alarms import FILE, Alarm, all_alarms

Event = Literal["began", "worse", "ended"]
KEPT = 200
"""Alarms that have ended and are still remembered."""

Key = tuple[str, str | None]


@dataclass(frozen=True)
class Change:
    """An alarm that began, got worse or ended."""

    event: Event
    alarm: Alarm


class AlarmBook:
    """Takes what rules find: an alarm begins with the first finding, and ends after a while without one."""

    def __init__(self, run: Path, calm_s: float) -> None:
        """An alarm is over after `calm_s` without it; so is what an attempt before has left active."""
        self._path, self._calm_s = run / FILE, calm_s
        alarms = all_alarms(run)
        self._active = {one.key: one for one in alarms if one.until is None}
        self._over = [one for one in alarms if one.until is not None]
        self._seen = {key: one.since for key, one in self._active.items()}
        """When each active one was found last."""

    @property
    def alarms(self) -> list[Alarm]:
        """All that are remembered."""
        return [*self._over, *self._active.values()]

    def look(self, sight: Sight, rules: dict[str, Rule] | None = None) -> list[Change]:
        """What the rules find now, and what follows."""
        found = {(name, one.node): one for name, one in _findings(sight, rules or RULES)}
        changes = [*self._begun(found, sight.now), *self._ended(found, sight.now)]
        if changes:
            self._write()
        return changes

    def end(self, now: float) -> list[Change]:
        """The attempt is over: so are its alarms, but for those that it ended with."""
        keys = [key for key in self._active if key[0] not in OUTLIVE]
        changes = [self._end(key, now) for key in keys]
        if changes:
            self._write()
        return changes

    def _begun(self, found: dict[Key, Finding], now: float) -> Iterator[Change]:
        for key, one in found.items():
            self._seen[key] = now
            before = self._active.get(key)
            if before is None:
                since = now if one.since is None else one.since
                self._active[key] = Alarm(key[0], one.level, one.what, since, one.node)
                yield Change("began", self._active[key])
            elif before.level != one.level == "critical":
                self._active[key] = replace(before, level=one.level, what=one.what)
                yield Change("worse", self._active[key])

    def _ended(self, found: dict[Key, Finding], now: float) -> Iterator[Change]:
        for key in [key for key in self._active if key not in found]:
            if now - self._seen[key] >= self._calm_s:
                yield self._end(key, self._seen[key] if self._seen[key] > self._active[key].since else now)

    def _end(self, key: Key, until: float) -> Change:
        alarm = replace(self._active.pop(key), until=until)
        self._over = [*self._over, alarm][-KEPT:]
        return Change("ended", alarm)

    def _write(self) -> None:
        with suppress(OSError):  # a full disk: it is told in other ways as well
            write_json(self._path, {"alarms": [one.as_json() for one in self.alarms]})


def _findings(sight: Sight, rules: dict[str, Rule]) -> Iterable[tuple[str, Finding]]:
    """A rule that meets records which it cannot read finds nothing."""
    for name, rule in rules.items():
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            yield from ((name, one) for one in list(rule(sight)))
