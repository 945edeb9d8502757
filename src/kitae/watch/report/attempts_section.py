"""How a run was begun, and begun again: its attempts and their cost, what failed first, saves, alarms."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from kitae.watch.alarms import all_alarms
from kitae.watch.cost import cost_of_attempt, seconds_of_attempt
from kitae.watch.facts import Attempt
from kitae.watch.first_failure import first_failure
from kitae.watch.report.blocks import Block, Listing, Table, Tone, Words
from kitae.watch.report.figures import NONE, counted, loss, moment, number, seconds, size, usd
from kitae.watch.report.run_view import RunView
from kitae.watch.table import first_line

_ATTEMPTS, _SAVES, _ALARMS = 200, 40, 60
"""That are listed; the newest."""
_LOG_LINES = 30
_NODES = 4
"""Whose names are written out."""
_OUTCOMES = {
    "finished": "finished",
    "stopped": "stopped",
    "failed": "failed",
    "killed": "died without a word",
    "given up": "given up",
    "running": "at work",
}


def attempts(view: RunView) -> Iterator[Block]:
    """A row for each, and what they cost together."""
    rows = [_attempt(view, place, one) for place, one in enumerate(view.status.facts.attempts, 1)]
    if not rows:
        return
    shown = rows[-_ATTEMPTS:]
    left = len(rows) - len(shown)
    yield Table(
        "attempts" + (f" (the newest {len(shown)} of {len(rows):,})" if left else ""),
        ("attempt", "began", "up to", "where", "time", "cost", "ended", "steps repeated", "why"),
        tuple(shown),
        words=frozenset({0, 1, 2, 3, 6, 8}),
    )
    yield Words(_together(view, len(rows)))


def _attempt(view: RunView, number_: int, attempt: Attempt) -> tuple[str, ...]:
    facts, state = view.status.facts, view.status.state
    lost = attempt.get("steps_lost")
    return (
        str(number_),
        moment(attempt.get("started")),
        str(attempt.get("last") or NONE),
        _where(attempt),
        seconds(seconds_of_attempt(facts, attempt, state, view.now)),
        usd(cost_of_attempt(facts, attempt, state, view.now)),
        _OUTCOMES.get(str(attempt.get("outcome")), str(attempt.get("outcome"))),
        NONE if lost is None else number(lost),
        first_line(str(attempt.get("why") or "")),
    )


def _where(attempt: Attempt) -> str:
    nodes = attempt.get("nodes")
    if nodes is None:
        return str(attempt.get("host") or "this machine")
    names = ", ".join(map(str, nodes[:_NODES]))
    more = f" and {len(nodes) - _NODES} more" if len(nodes) > _NODES else ""
    return f"job {attempt.get('job', '?')}: {names}{more}"


def _together(view: RunView, count: int) -> str:
    cost = view.status.cost_usd
    spent = (
        "what they cost is unknown: no price is set (target.price_per_node_hour)"
        if cost is None
        else (f"{usd(cost)} for nodes, without storage and network")
    )
    budget = "" if view.budget_usd is None else f", of a budget of {usd(view.budget_usd)}"
    return f"Together: {counted(count, 'attempt')}, {seconds(view.machine_seconds)}; {spent}{budget}."


def failure(view: RunView) -> Iterator[Block]:
    """The first error of the newest attempt that failed, in words, and the log around it."""
    found = first_failure(view.status, _LOG_LINES)
    if found is None:
        return
    yield Words(f"{found.title}: {found.what}", "bad")
    if found.log is not None and found.lines:
        yield Listing(found.log.name, "\n".join(found.lines))


def checkpoints(view: RunView) -> Iterator[Block]:
    """Saves, how long the training waited for them, and what is there."""
    saves = view.records("saves.jsonl")
    index = {one.get("step"): one for one in view.read("checkpoints/index.json").get("saves") or []}
    there = {
        int(path.name[5:]): path
        for path in (view.path / "checkpoints").glob("step-*")
        if path.name[5:].isdecimal()
    }
    steps = sorted({one["step"] for one in saves} | set(index) | set(there))[-_SAVES:]
    waits = {one["step"]: one.get("seconds") for one in saves}
    rows = tuple(
        (
            f"{step:,}",
            loss(index.get(step, {}).get("heldout_loss")),
            seconds(waits.get(step)),
            size(_bytes(there[step])) if step in there else "removed, or not here",
        )
        for step in steps
    )
    if rows:
        yield Table("the newest saves", ("step", "held-out loss", "training waited", "size"), rows)
    if waits:
        waited = [one for one in waits.values() if one is not None]
        yield Words(f"The training waited {seconds(sum(waited))} for {counted(len(saves), 'save')}.")


def _bytes(folder: Any) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def alarms(view: RunView) -> Iterator[Block]:
    """Those that the watch raised, with their beginnings and ends."""
    found = all_alarms(view.path)
    rows = tuple(
        (
            one.level,
            one.name,
            one.what,
            one.node or NONE,
            _time(one.since),
            "not ended" if one.until is None else _time(one.until),
        )
        for one in found[-_ALARMS:]
    )
    if rows:
        more = f" (the newest {len(rows)} of {len(found):,})" if len(found) > len(rows) else ""
        head = ("level", "alarm", "what", "node", "began", "ended")
        yield Table(f"alarms{more}", head, rows, frozenset(range(6)))


def _time(since: float) -> str:
    """Of a moment in seconds since 1970."""
    return moment(datetime.fromtimestamp(since, timezone.utc).isoformat())


def gaps(view: RunView) -> Iterator[Block]:
    """What could not be read."""
    tone: Tone = "warn"
    for gap in dict.fromkeys(view.gaps):
        yield Words(f"{gap[:1].upper()}{gap[1:]}.", tone)
