"""Ranks that go on only when all of them can."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kitae.backend.group import Group
from kitae.errors import KitaeError

Own = TypeVar("Own")
Shared = TypeVar("Shared")


def agreed(control: Group, work: Callable[[], tuple[Own, Shared]]) -> tuple[Own, list[Shared]]:
    """Work on every rank; what it keeps here, and what it gave to all (plain Python) on each rank, in order.

    When it fails anywhere, the error of the first rank that failed is raised on all ranks: none is left
    waiting for another.
    """
    if control.size == 1:
        own, shared = work()
        return own, [shared]
    result: tuple[Own, Shared] | None = None
    failure: Exception | None = None
    try:
        result = work()
    except Exception as error:
        failure = error
    told = None if failure is None else _told(control.rank, failure)
    answers = control.exchange((told, None if result is None else result[1]))
    first = next((told for told, _ in answers if told is not None), None)
    if first is not None:
        raise first from failure
    assert result is not None
    return result[0], [shared for _, shared in answers]


def _told(rank: int, failure: Exception) -> Exception:
    """An error that can travel and says where it comes from."""
    if isinstance(failure, KitaeError):
        return type(failure)(f"rank {rank}: {failure}")
    return RuntimeError(f"rank {rank} failed: {type(failure).__name__}: {failure}")
