"""What a person reads of a change before it is made: keys, money, what cannot be, what a dry run says."""

from __future__ import annotations

from pathlib import Path

from kitae.cluster.engine_calls import Trial
from kitae.cluster.money import Tariff, dollars, tariff
from kitae.cluster.update import Update
from kitae.cluster.verdicts import REFUSED
from kitae.errors import ClusterError, RecipeError

_STOPPED = "STOPPED"
_FAILS = "ParallelCluster itself fails"


def plan_lines(update: Update) -> list[str]:
    """What would change, and what it does to the money."""
    old, new = tariff(update.old), tariff(update.new)
    if not update.verdicts:
        lines = [f"{update.new.name} is what {update.build.path} says already"]
    else:
        lines = [f"{update.new.name} in {update.new.region}, as the account has it -> {update.build.path}:"]
        lines += [f"  {one.line()}" for one in update.verdicts]
    return [*lines, *money_lines(old, new), *update.step.lines()[:2]]


def money_lines(old: Tariff, new: Tariff) -> list[str]:
    """Before and after, by the hour and for a month."""
    rows = [
        ("US$", "before", "after"),
        ("an hour while idle", dollars(old.idle_usd), dollars(new.idle_usd)),
        ("an hour with all queues full", dollars(old.full_usd), dollars(new.full_usd)),
        ("a month of what stays on while idle", dollars(old.idle_usd * 730), dollars(new.idle_usd * 730)),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [f"{a:{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows]
    unknown = tuple(dict.fromkeys((*old.unknown, *new.unknown)))
    return [
        *lines,
        *([f"not counted, as their prices are not known: {', '.join(unknown)}"] if unknown else []),
    ]


def refuse_impossible(update: Update) -> None:
    """Raise one `RecipeError` with all that ParallelCluster cannot do, and the way out of each."""
    wrong = [f"{one.change.key}: {one.why}" for one in update.verdicts if one.label == REFUSED]
    explained = wrong or update.deletes
    if not explained:
        wrong = [
            f"{row['parameter']}: {row['why_stopped']}" for row in update.rows if not row["allowed_stopped"]
        ]
    if wrong:
        raise RecipeError(
            f"{update.build.path}: ParallelCluster cannot change this of a cluster that stands; nothing was "
            "done:\n  " + "\n  ".join(wrong)
        )


def trial_lines(update: Update, path: Path) -> list[str]:
    """What ParallelCluster's dry run says. Raises `ClusterError` where it refuses what was not foreseen."""
    if not update.rows:
        return ["of ParallelCluster's configuration nothing changes"]
    if any(row["why"].startswith(_FAILS) for row in update.rows) and update.cluster.fleet != _STOPPED:
        return ["ParallelCluster's dry run fails on this change while the fleet runs; it is left out"]
    trial = update.build.clusters.try_update(update.new.name, path, update.build.suppress)
    allowed = "allowed_stopped" if update.cluster.fleet == _STOPPED else "allowed"
    foreseen = {row["parameter"] for row in update.rows if not row[allowed]}
    others = {key: why for key, why in trial.refused.items() if key not in foreseen}
    if others:
        listed = "; ".join(f"{key}: {why}" for key, why in others.items())
        raise ClusterError(f"ParallelCluster refuses the change of {update.new.name}: {listed}")
    return _trial_words(trial, update)


def _trial_words(trial: Trial, update: Update) -> list[str]:
    if not trial.refused:
        return [f"ParallelCluster's dry run: it would be done; {len(trial.parameters)} of its keys change"]
    what = "once that is agreed to" if update.deletes else "once the fleet is stopped"
    head = f"ParallelCluster's dry run: {len(trial.parameters)} of its keys change, of which {what}:"
    return [head, *(f"  {one}" for one in trial.refused)]
