"""Times and lengths of time, as a cluster file writes them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from kitae.cluster.schema import TIME_SPAN

_UNITS = {"minute": 60, "hour": 3600, "day": 86400}


def seconds_of(span: str) -> int:
    """Seconds of `10 minutes`, `12 hours` or `2 days`."""
    number, unit = span.split()
    return int(number) * _UNITS[unit.rstrip("s")]


def is_span(text: str) -> bool:
    """Whether a text is a length of time."""
    return re.fullmatch(TIME_SPAN, text) is not None


def moment(text: str) -> datetime:
    """A time as ISO 8601 writes it; without a zone it is in UTC. Raises `ValueError`."""
    found = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    return found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)


def end_of(until: str, now: datetime) -> datetime:
    """The end that `until` names, for a cluster that is made `now`. Raises `ValueError`."""
    return now + timedelta(seconds=seconds_of(until)) if is_span(until) else moment(until)


def shown(when: datetime) -> str:
    """A time as people read it, in UTC."""
    return f"{when.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC"
