"""The first real error of a run's newest attempt that failed, and where: not what came of it elsewhere.

What the nodes of the attempt left says it (`launch.node_end` knows the order); on one machine the attempt's
record does; where everything was killed, the ranks' logs are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kitae.launch.failure import End
from kitae.launch.node import node_file
from kitae.launch.node_end import NodeEnd, result_of_nodes
from kitae.launch.order import Launch, Order
from kitae.launch.outcome import Outcome
from kitae.watch.attempt_log import around, last_words, section
from kitae.watch.facts import RunFacts
from kitae.watch.log_view import log_path, ranks_with_logs
from kitae.watch.status import Status
from kitae.watch.table import first_line
from kitae.watch.tail import last_lines

_RANK = re.compile(r"\brank (\d+)\b")
_OF_RANK = re.compile(r"^rank \d+: ")


@dataclass(frozen=True)
class FirstFailure:
    """What failed first."""

    title: str
    """Which attempt, and where."""
    what: str
    """The message, as one would have been told; may be several lines."""
    log: Path | None = None
    lines: tuple[str, ...] = ()
    """Of that log, up to the error."""


def first_failure(status: Status, count: int) -> FirstFailure | None:
    """The first failure of a run, with about `count` lines of the log; None where nothing has failed."""
    facts = status.facts
    number = _failed_attempt(status)
    if number is None:
        return _of_job(status, count) if status.state in ("failed", "died") else None
    ways = (_from_nodes, _from_record, _from_logs)
    found = (way(facts, number, count) for way in ways)
    return next((one for one in found if one is not None), _unsaid(facts, number, count, status.why))


def _failed_attempt(status: Status) -> int | None:
    """The number of the newest attempt that failed, from 1; not behind one that finished."""
    attempts = status.facts.attempts
    for number in range(len(attempts), 0, -1):
        outcome = attempts[number - 1]["outcome"]
        if outcome in ("failed", "killed", "given up"):
            return number
        if outcome == "running" and status.state == "died":
            return number
        if outcome == "finished":
            return None
    return None


def _from_nodes(facts: RunFacts, number: int, count: int) -> FirstFailure | None:
    """From what the nodes and ranks of the attempt left in its folder."""
    folder = facts.path / "attempts" / f"{number:04d}"
    try:
        launch = replace(Order.read(folder / "order.json").launch, logs=facts.path / "logs")
    except (OSError, ValueError, KeyError, TypeError):
        return None
    nodes = [_node(folder, launch, node) for node in range(launch.nodes)]
    if not any(nodes):
        return None
    error = result_of_nodes(nodes, launch)
    if error is None:
        return None
    what = str(error) or type(error).__name__
    guilty = _guilty(nodes, what)
    place = "" if guilty is None else f"rank {guilty}, {launch.place(guilty)}"
    return _told(facts, number, place, what, guilty, count)


def _node(folder: Path, launch: Launch, node: int) -> NodeEnd | None:
    """What a node left; of one that is gone, what its ranks left that failed of their own."""
    end = NodeEnd.read(node_file(folder, node))
    if end is not None:
        return end
    ends = [
        End(rank, 0, outcome.exit_code, outcome, ended_here=False, noticed_ns=outcome.at_ns)
        for rank in replace(launch, node=node).local_ranks
        if (outcome := Outcome.read(folder / f"rank-{rank}.json")) is not None
        and not outcome.orderly
        and not outcome.lost_peer
    ]
    return NodeEnd(launch.names[node], tuple(ends)) if ends else None


def _guilty(nodes: list[NodeEnd | None], what: str) -> int | None:
    """The rank that the message is about."""
    found = [node for node in nodes if node is not None]
    if any(node.verdict is not None for node in found):
        return _rank_in(what)
    failed = sorted((end.order, end.rank) for node in found for end in node.ends if end.failed)
    return failed[0][1] if failed and not what.startswith("node ") else None


def _rank_in(text: str) -> int | None:
    match = _RANK.search(first_line(text))
    return None if match is None else int(match[1])


def _from_record(facts: RunFacts, number: int, count: int) -> FirstFailure | None:
    """From what the process that did the attempt said at its end."""
    attempt = facts.attempts[number - 1]
    why = attempt.get("why")
    if attempt["outcome"] == "killed" or not why:
        return None
    rank = _rank_in(why)
    place = "" if rank is None else f"rank {rank}"
    return _told(facts, number, place, why, 0 if rank is None else rank, count)


def _told(facts: RunFacts, number: int, place: str, what: str, rank: int | None, count: int) -> FirstFailure:
    """A failure with the lines of a rank's log."""
    title = _title(number, place)
    what = what.partition("\nlast lines of ")[0]  # they are shown below
    if rank is None or not log_path(facts.path, rank).is_file():
        return FirstFailure(title, what)
    log = log_path(facts.path, rank)
    message = _OF_RANK.sub("", first_line(what))
    return FirstFailure(title, what, log, around(section(log, number, facts.attempts), message, count))


def _title(number: int, place: str) -> str:
    return f"attempt {number}{', ' if place else ''}{place}"


def _from_logs(facts: RunFacts, number: int, count: int) -> FirstFailure | None:
    """From the logs alone: errors of their own first, the earliest of them; then ranks that said nothing."""
    found = sorted(_words(facts, number))
    if all(kind == 1 for kind, *_ in found):
        return None
    _, _, rank, message = found[0]
    what = message or f"rank {rank} ended and said nothing, while others lost it (killed?)"
    return _told(facts, number, f"rank {rank}", what, rank, count)


def _words(facts: RunFacts, number: int) -> Iterator[tuple[int, float, int, str]]:
    """Kind, time, rank and message of the end of every log that has lines of the attempt."""
    for rank in ranks_with_logs(facts.path):
        log = log_path(facts.path, rank)
        lines = section(log, number, facts.attempts)
        if lines:
            words = last_words(lines)
            yield words.kind, log.stat().st_mtime, rank, words.message


def _unsaid(facts: RunFacts, number: int, count: int, why: str) -> FirstFailure:
    """Of an attempt of which nothing but its end is known."""
    attempt = facts.attempts[number - 1]
    what = attempt.get("why") or why or "it ended without a word"
    return _told(facts, number, "", f"{what}; no log of a rank holds an error", 0, count)


def _of_job(status: Status, count: int) -> FirstFailure:
    """Of a job that failed before an attempt began, or after it."""
    logs = [path for path in (status.facts.path / "logs").glob("slurm-*.log") if path.is_file()]
    if not logs:
        return FirstFailure("no attempt has begun", status.why)
    newest = max(logs, key=lambda path: path.stat().st_mtime)
    return FirstFailure("outside of an attempt", status.why, newest, tuple(last_lines(newest, count)))
