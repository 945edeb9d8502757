"""What the attempts of a run cost so far."""

from __future__ import annotations

from kitae.launch.slurm.money import cost_usd
from kitae.watch.facts import Attempt, RunFacts, seconds_since_1970
from kitae.watch.state import ACTIVE, State


def cost_of_run(facts: RunFacts, state: State, now: float) -> float | None:
    """US dollars of all attempts, as far as prices are known; None where none is."""
    costs = [cost_of_attempt(facts, one, state, now) for one in facts.attempts]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None


def cost_of_attempt(facts: RunFacts, attempt: Attempt, state: State, now: float) -> float | None:
    """US dollars of one of the run's attempts; None where its price is unknown."""
    if attempt.get("cost_usd") is not None:
        return float(attempt["cost_usd"])
    price = attempt.get("price_per_node_hour") or facts.price_per_node_hour
    nodes = attempt.get("nodes")
    seconds = seconds_of_attempt(facts, attempt, state, now)
    return cost_usd(1 if nodes is None else len(nodes), seconds, price)


def seconds_of_attempt(facts: RunFacts, attempt: Attempt, state: State, now: float) -> float:
    """From its beginning to its end; to `now` (seconds since 1970) while it goes on."""
    begun = seconds_since_1970(attempt["started"])
    if attempt.get("ended"):
        ended = seconds_since_1970(attempt["ended"])
    else:  # one that died cost until its last sign, as far as anybody knows
        ended = now if attempt is facts.newest and state in ACTIVE else facts.last_sign or begun
    return max(0.0, ended - begun)
