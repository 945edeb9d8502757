"""Whether a training ends before what it runs on is taken away: the end of a capacity block."""

from __future__ import annotations

from datetime import datetime, timezone

from kitae.errors import RecipeError
from kitae.plan.estimate import Estimate
from kitae.plan.phases import COMPILE_S, START_S, WARM_UP_S, span
from kitae.recipe.target import seconds_of


def longest_s(found: Estimate) -> float | None:
    """Seconds until its last step, by the interval's end, compilation and start included."""
    train = found.train_s(1)
    backend = found.phases[0].work.backend
    return None if train is None else COMPILE_S[backend] + START_S[backend] + WARM_UP_S[backend] + train


def moment(text: str) -> datetime:
    """A time as ISO 8601 writes it; without a zone it is in UTC. Raises `RecipeError`."""
    try:
        found = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        raise RecipeError(f"--until: {text!r} is no time such as 2026-12-24T11:30Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)


def refuse_after(found: Estimate, end: datetime | None, now: datetime, time_limit: str | None = None) -> None:
    """Raise `RecipeError` where the training, or its job's time limit, may reach past `end`."""
    if end is None:
        return
    left, longest = (end - now).total_seconds(), longest_s(found)
    if time_limit is not None and 0 < left < seconds_of(time_limit):
        raise RecipeError(
            f"--until: target.time_limit ({time_limit}) goes past {end:%Y-%m-%d %H:%M %Z}: a job begun now "
            f"would be killed there, or not begin; make it shorter than {span(left)}, so that it saves before"
        )
    if longest is None:
        raise RecipeError("--until: the length is unknown; write training.duration in steps or tokens")
    if longest > left:
        there = f"{span(left)} are left" if left > 0 else "that has passed"
        raise RecipeError(
            f"--until: started now, it may take {span(longest)}, and until {end:%Y-%m-%d %H:%M %Z} {there}; "
            "shorten training.duration, take more nodes, or a later end"
        )
