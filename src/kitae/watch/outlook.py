"""Money and time of a run: so far, and at its end."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kitae.launch.slurm.money import cost_usd
from kitae.watch.status import Status


@dataclass(frozen=True)
class Outlook:
    """None for what nothing tells. Amounts are US dollars of all attempts."""

    cost_usd: float | None = None
    cost_end_usd: float | None = None
    """At its end, if it goes on as now; of a run that has ended, what it cost."""
    seconds_left: float | None = None
    """Of the updates that are left, without evaluations and saves; None unless it runs."""
    ends_at: float | None = None
    """In seconds since 1970."""
    budget_usd: float | None = None
    """What the recipe allows (`watch.alarms.budget_usd`)."""
    price_per_hour: float | None = None
    """Of all nodes, while it runs."""

    @property
    def budget_left_usd(self) -> float | None:
        """Negative where more has been spent."""
        if self.budget_usd is None or self.cost_usd is None:
            return None
        return self.budget_usd - self.cost_usd


def outlook_of(status: Status, now: float) -> Outlook:
    """Of a run at `now` (seconds since 1970)."""
    price = _price(status)
    hourly = None if price is None else status.node_count * price
    left = status.seconds_left
    return Outlook(
        cost_usd=status.cost_usd,
        cost_end_usd=_cost_at_end(status, hourly),
        seconds_left=left,
        ends_at=None if left is None else now + left,
        budget_usd=budget_of(status.facts.path),
        price_per_hour=hourly if status.state == "running" else None,
    )


def _price(status: Status) -> float | None:
    own = (status.facts.newest or {}).get("price_per_node_hour")
    return status.facts.price_per_node_hour if own is None else float(own)


def _cost_at_end(status: Status, hourly: float | None) -> float | None:
    """What is left counts also where the run waits: it goes on by itself."""
    if not status.active:
        return status.cost_usd
    left = status.progress.seconds_left
    if left is None or hourly is None:
        return None
    return (status.cost_usd or 0.0) + (cost_usd(1, left, hourly) or 0.0)


def budget_of(run: Path) -> float | None:
    """`watch.alarms.budget_usd` of a run's recipe; None where it has none or cannot be read."""
    for name in ("recipe.yaml", "submitted.yaml"):
        with suppress(OSError):
            path = run / name
            return _budget_in(path, path.stat().st_mtime_ns)
    return None


@lru_cache(maxsize=64)
def _budget_in(recipe: Path, changed: int) -> float | None:
    """Of a file as it was at `changed`: a recipe takes long to read beside the rest of a look."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with suppress(OSError, ValueError, yaml.YAMLError, KeyError, TypeError):
        return float(yaml.load(recipe.read_text(encoding="utf-8"), loader)["watch"]["alarms"]["budget_usd"])
    return None
