"""What a person should look at now, and since when: alarms of a run, as `alarms.json` holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from kitae.stages.files import read_json

FILE = "alarms.json"
"""Of a run: those that are active, and those that have been."""
Level = Literal["warning", "critical"]


@dataclass(frozen=True)
class Alarm:
    """One thing that is wrong."""

    name: str
    """Of the rule: `idle-while-paid`, `non-finite-loss`, `rising-loss`, `slow-rank`, `disk-nearly-full`,
    `budget-at-80-percent`."""
    level: Level
    what: str
    """For a person, with numbers and a way out."""
    since: float
    """When it began, in seconds since 1970."""
    node: str | None = None
    """Where; None for what concerns the whole run."""
    until: float | None = None
    """When it ended; None while it is active."""

    @property
    def key(self) -> tuple[str, str | None]:
        """Of one that is active there is one of a kind and node."""
        return self.name, self.node

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Alarm:
        """Of `as_json`. Raises ValueError for values that are none of an alarm."""
        try:
            until = values.get("until")
            return cls(
                name=str(values["name"]),
                level="critical" if values["level"] == "critical" else "warning",
                what=str(values["what"]),
                since=float(values["since"]),
                node=values.get("node"),
                until=None if until is None else float(until),
            )
        except (AttributeError, KeyError, OverflowError, TypeError) as error:
            raise ValueError(f"no alarm: {error}") from error


def read_alarms(run: Path) -> list[Alarm]:
    """The alarms of a run that are active, the earliest first."""
    return [one for one in all_alarms(run) if one.until is None]


def all_alarms(run: Path) -> list[Alarm]:
    """Those that have ended as well."""
    found, alarms = [], read_json(run / FILE).get("alarms")
    for values in alarms if isinstance(alarms, list) else ():
        try:
            found.append(Alarm.from_json(values))
        except ValueError:
            continue  # of another kitae
    return sorted(found, key=lambda one: one.since)
