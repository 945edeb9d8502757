"""The dead man's switch of a cluster that stands, set to another end: later, sooner, or to what money allows.

What was asked for and what may be spent are outputs of the switch's stack: any machine reads them there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from kitae.cluster.aws import Account
from kitae.cluster.budget import Budget
from kitae.cluster.costs import bill
from kitae.cluster.kept import keep, known
from kitae.cluster.moments import end_of, moment, shown
from kitae.cluster.money import dollars, tariff
from kitae.cluster.names import Names
from kitae.cluster.policy import Scope
from kitae.cluster.schema import ClusterFile
from kitae.cluster.spans import spans_of
from kitae.cluster.stacks import Stack, change_stack, find_stack
from kitae.cluster.switch import instant, switch_template
from kitae.errors import ClusterError, RecipeError

WANTED = "Wanted"
MOST = "MaxCostUsd"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Ends:
    """When AWS ends a cluster, and why then."""

    until: datetime
    wanted: datetime
    """What was asked for; later than `until` where the money would not have lasted."""
    most_usd: Decimal | None
    created: datetime | None


def told(wanted: datetime, most_usd: Decimal) -> dict[str, str]:
    """Outputs of the switch."""
    return {WANTED: instant(wanted), MOST: f"{most_usd.normalize():f}"}


def ends_of(stack: Stack | None) -> Ends | None:
    """What a switch's stack says; None without one."""
    if stack is None or "Until" not in stack.outputs:
        return None
    until, most = stack.outputs["Until"], stack.outputs.get(MOST)
    return Ends(
        moment(until),
        moment(stack.outputs.get(WANTED, until)),
        None if most is None else Decimal(most),
        stack.created,
    )


def budget_of(account: Account, file: ClusterFile, now: datetime) -> Budget:
    """What a cluster may spend, has spent, and would with every queue full. Raises `ClusterError`."""
    spent = bill(spans_of(account, file, now), file.prices, now).spent_usd
    return Budget(_decimal(file.limits.max_cost_usd), spent, tariff(file).full_usd)


@dataclass(frozen=True)
class Move:
    """The switch, from one end to another."""

    file: ClusterFile
    """As the cluster is to be; its limits are those that hold then."""
    ends: Ends
    wanted: datetime
    budget: Budget
    now: datetime

    @property
    def until(self) -> datetime:
        """The new end."""
        return self.budget.end(self.wanted, self.now)

    @property
    def limited(self) -> bool:
        """Whether money ends it before the time does."""
        return self.until < self.wanted

    def lines(self) -> list[str]:
        """What it means, to be read before it is agreed to."""
        full = dollars(self.budget.full_usd)
        return [
            f"AWS ends {self.file.name} at {shown(self.ends.until)} now, and at {shown(self.until)} then",
            self.budget.words(self.wanted, self.now),
            f"with every queue full it is {full} an hour: "
            f"{_difference(self.budget, self.ends.until, self.until, self.now)}",
        ]


def move_of(account: Account, file: ClusterFile, until: str, now: datetime) -> Move:
    """Where the switch of a cluster goes with `until`. Raises `ClusterError` where it has none."""
    ends = ends_of(find_stack(account, Names(file.name).switch_stack))
    if ends is None:
        raise ClusterError(
            f"{file.name} in {account.region} has no switch: nothing ends it by itself; "
            "kitae cluster up sets one, kitae cluster down takes it away"
        )
    if ends.until <= now:
        raise ClusterError(
            f"AWS has been ending {file.name} since {shown(ends.until)}; that goes on; kitae cluster status "
            "shows what is still there, and kitae cluster down makes it sure"
        )
    return Move(file, ends, _wanted(until, ends, now), budget_of(account, file, now), now)


def _wanted(until: str, ends: Ends, now: datetime) -> datetime:
    """A time; a length counts from the first `up`; one with a plus from the end that is set."""
    try:
        if until.startswith("+"):
            found = end_of(until[1:].strip(), ends.until)
        else:
            found = end_of(until, ends.created or now)
    except ValueError:
        raise RecipeError(
            f"until: {until!r} is no time; write one such as 2026-12-24T18:00Z, 12 hours after `up`, or "
            "'+3 hours' from the end that is set"
        ) from None
    if found <= now:
        raise RecipeError(
            f"until: {shown(found)} has passed; write a later end; kitae cluster down ends it now"
        )
    return found


def move(account: Account, step: Move, say: Say) -> datetime:
    """Set the switch. Raises `ClusterError`; the old end holds then."""
    if step.until <= step.now:
        raise ClusterError(
            f"{step.file.name} has used up what it may cost: {dollars(step.budget.spent_usd)} of "
            f"{dollars(step.budget.most_usd)} are spent; the switch stays at {shown(step.ends.until)}; raise "
            "it with kitae cluster extend --max-cost-usd, or kitae cluster down"
        )
    names, file = Names(step.file.name), step.file
    template = switch_template(
        Scope.of(file, account.number),
        step.until,
        names.tags(file.tags),
        told(step.wanted, step.budget.most_usd),
    )
    change_stack(account, names.switch_stack, template, names.tags(file.tags))
    say(f"the switch is set: AWS ends {file.name} from {instant(step.until)} on")
    say(step.budget.words(step.wanted, step.now))
    return step.until


def extend(account: Account, step: Move, say: Say) -> None:
    """Set the switch, and keep the limits in the account."""
    move(account, step, say)
    keep(account, step.file)


def with_limits(file: ClusterFile, until: str | None, most_usd: float | None) -> ClusterFile:
    """The file with other limits."""
    changes = {"until": until, "max_cost_usd": most_usd}
    given = {key: value for key, value in changes.items() if value is not None}
    return file.model_copy(update={"limits": file.limits.model_copy(update=given)})


def within_budget(account: Account, name: str, say: Say, now: datetime) -> None:
    """Before machines start: the switch to the sooner end, where money ends it before the time does."""
    file = known(account, name)
    step = move_of(account, file, "+0 minutes", now)
    step = replace(step, wanted=step.ends.wanted)
    if step.until != step.ends.until:
        move(account, step, say)
    else:
        say(step.budget.words(step.wanted, now))


def _difference(budget: Budget, old: datetime, new: datetime, now: datetime) -> str:
    usd = budget.cost_until(new, now) - budget.cost_until(old, now)
    if usd == 0:
        return "as before"
    return f"{dollars(abs(usd))} {'more' if usd > 0 else 'less'} at most than until the old end"


def _decimal(number: float) -> Decimal:
    return Decimal(str(number))
