"""Numbers as a screen shows them."""

from __future__ import annotations

import time

NONE = "-"
_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_GIB = float(1 << 30)


def compact(value: float | None) -> str:
    """Three or four digits: 12.3k, 1,780, 0.0312, 3.0e-04."""
    if value is None:
        return NONE
    size = abs(value)
    for unit, sign in _LARGE:
        if size >= 10 * unit or (size >= unit and unit > 1e3):
            return f"{value / unit:.3g}{sign}"
    if 0 < size < 1e-3:
        return f"{value:.1e}"
    return f"{value:,.0f}" if size >= 1000 else f"{value:.4g}"


def seconds(value: float | None) -> str:
    """With its unit: 5.06 ms, 2 s."""
    return NONE if value is None else f"{1e3 * value:.3g} ms" if value < 0.1 else f"{value:.3g} s"


def percent(share: float | None, digits: int = 0) -> str:
    """Of a share of 1."""
    return NONE if share is None else f"{100 * share:.{digits}f} %"


def gib(count: float | None) -> str:
    """Bytes as GiB."""
    return NONE if count is None else f"{count / _GIB:.1f}" if count < 100 * _GIB else f"{count / _GIB:.0f}"


def of_gib(used: float | None, total: float | None) -> str:
    """Both, as GiB."""
    return NONE if used is None else f"{gib(used)}/{gib(total)} GiB" if total else f"{gib(used)} GiB"


def usd(amount: float | None) -> str:
    """US dollars."""
    return NONE if amount is None else f"{'-' if amount < 0 else ''}${abs(amount):,.2f}"


def clock(at: float | None, now: float) -> str:
    """The time of day here; with the date where it is not today."""
    if at is None:
        return NONE
    form = "%H:%M:%S" if time.localtime(at)[:3] == time.localtime(now)[:3] else "%Y-%m-%d %H:%M"
    return time.strftime(form, time.localtime(at))


def share(used: float | None, total: float | None) -> float | None:
    """One by the other, where both are known."""
    return used / total if used is not None and total else None


def mean(values: list[float]) -> float | None:
    """None of nothing."""
    return sum(values) / len(values) if values else None
