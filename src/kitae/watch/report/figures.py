"""Numbers as a person reads them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime, timezone
from math import isfinite

NONE = "–"
_SIZES = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
_AMOUNTS = ((" T", 10**12), (" B", 10**9), (" M", 10**6))


def number(value: float | None, digits: int = 4) -> str:
    """With so many digits that count; thousands are told apart."""
    if value is None or not isfinite(value):
        return NONE
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def loss(value: float | None) -> str:
    """Nats, with four places."""
    return NONE if value is None or not isfinite(value) else f"{value:.4f}"


def percent(share: float | None, sign: str = "") -> str:
    """A share of 1; `sign` is "+" to show it of what is positive, too."""
    return NONE if share is None or not isfinite(share) else f"{100 * share:{sign}.1f} %"


def amount(value: float | None) -> str:
    """A count in its largest unit, such as 134.5 M."""
    if value is None or not isfinite(value):
        return NONE
    for unit, size in _AMOUNTS:
        if abs(value) >= size:
            return f"{value / size:.4g}{unit}"
    return number(value)


def size(value: float | None) -> str:
    """Bytes in their largest unit."""
    if value is None or not isfinite(value):
        return NONE
    for unit, one in _SIZES:
        if value >= one:
            return f"{value / one:.3g} {unit}"
    return f"{value:.0f} bytes"


def usd(value: float | None) -> str:
    """US dollars."""
    return NONE if value is None else f"${value:,.2f}"


def seconds(value: float | None) -> str:
    """A time in one or two units, such as 4 min 36 s."""
    if value is None or not isfinite(value):
        return NONE
    if value < 1:
        return f"{1000 * value:.3g} ms"
    if value < 60:
        return f"{value:.3g} s"
    whole = round(value)
    days, hours, minutes = whole // 86400, whole % 86400 // 3600, whole % 3600 // 60
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole % 60} s"


def moment(text: object) -> str:
    """A time of `run.json`, to the minute, in UTC; as it is, where it is none."""
    try:
        return f"{datetime.fromisoformat(str(text)).astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return NONE if text is None else str(text)


def counted(count: int, what: str) -> str:
    """A number of things, such as 1 attempt or 2 attempts."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """A curve in one line of text: the mean of each stretch, from the lowest to the highest."""
    known = [value for value in values if isfinite(value)]
    if not known:
        return ""
    bins = min(width, len(known))
    cuts = [len(known) * place // bins for place in range(bins + 1)]
    means = [sum(known[a:b]) / (b - a) for a, b in itertools.pairwise(cuts)]
    low, high = min(means), max(means)
    steps = "▁▂▃▄▅▆▇█"
    span = (high - low) or 1.0
    return "".join(steps[min(7, int(8 * (mean - low) / span))] for mean in means)
