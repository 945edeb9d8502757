"""What a rank wrote in one attempt, and the lines of its error in there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kitae.watch.facts import Attempt, seconds_since_1970
from kitae.watch.tail import lines_from_end

_HEAD = re.compile(r"---- \S+ attempt (\d+): rank ")
_TIMED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:?\d\d) ")
_TRACEBACK = "Traceback (most recent call last):"
_CRASH = "Fatal Python error: "
_RAISED = re.compile(r"(?:[A-Za-z_][\w.]*(?:Error|Exception|Warning|Interrupt|Exit)|interrupt)(?:: |$)")
_PEER_GONE = re.compile(r'File ".*(?:/kitae/backend/group\.py|/torch/distributed/[^"]*)", line')
_MOST_BYTES = 1 << 24


@dataclass(frozen=True)
class Words:
    """The last words of a rank in an attempt."""

    kind: int
    """0: it met an error of its own; 1: it said nothing; 2: it lost a peer."""
    message: str
    lines: tuple[str, ...]
    """From the beginning of the traceback to the message."""


def section(log: Path, number: int, attempts: Sequence[Attempt]) -> list[str]:
    """The lines of an attempt (from 1) in the log of a rank."""
    begun = seconds_since_1970(attempts[number - 1]["started"])
    ended = seconds_since_1970(attempts[number]["started"]) if number < len(attempts) else float("inf")
    found: list[str] = []
    for line in lines_from_end(log, _MOST_BYTES):
        head, timed = _HEAD.match(line), _TIMED.match(line)
        if head is not None and int(head[1]) <= number:
            return [line, *found[::-1]] if int(head[1]) == number else []
        if timed is not None and seconds_since_1970(timed[1]) < begun:
            while found and not _TIMED.match(found[-1]):
                found.pop()  # further lines of what stands here
            break
        found.append(line)
        if head is not None or (timed is not None and seconds_since_1970(timed[1]) >= ended):
            found.clear()  # of a later attempt
    return found[::-1]


def last_words(lines: Sequence[str]) -> Words:
    """How the section of a log ends."""
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].startswith(_CRASH):
            return Words(0, lines[index], tuple(lines[index:]))
        if _RAISED.match(lines[index]):
            first = _begin_of_traceback(lines, index)
            block = tuple(lines[first : index + 1])
            return Words(2 if _lost_peer(block) else 0, lines[index], block)
    return Words(1, "", ())


def _begin_of_traceback(lines: Sequence[str], index: int) -> int:
    """Where the traceback that ends with this line begins; the line itself where there is none."""
    first = index
    while first > 0 and (lines[first - 1].startswith(" ") or lines[first - 1] == _TRACEBACK):
        first -= 1
        if lines[first] == _TRACEBACK:
            return first
    return index


def _lost_peer(block: Sequence[str]) -> bool:
    """Whether the innermost frame is a collective's, as where another rank is gone."""
    frames = [line for line in block if line.lstrip().startswith('File "')]
    return bool(frames) and _PEER_GONE.search(frames[-1]) is not None


def around(lines: Sequence[str], message: str, count: int) -> tuple[str, ...]:
    """At most `count` lines that end with the one that has the message; the last ones where none has it."""
    found = [index for index, line in enumerate(lines) if message and message in line]
    if not found:
        return tuple(lines[-count:])
    first = min(_begin_of_traceback(lines, found[-1]), max(0, found[-1] + 1 - count))
    return tuple(lines[max(first, found[-1] + 1 - 4 * count) : found[-1] + 1])
