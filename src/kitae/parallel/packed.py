"""What travels together: runs of parameters, in an order that every rank has."""

from __future__ import annotations

from collections.abc import Mapping


def packed(sizes: Mapping[str, int], limit: int) -> list[list[str]]:
    """Cut names with sizes into runs of at most `limit` together; what is larger stands alone."""
    runs: list[list[str]] = []
    left = 0
    for name, size in sizes.items():
        if size > left or not runs:
            runs.append([])
            left = limit
        runs[-1].append(name)
        left -= size
    return runs
