"""Constants of a cost from measured samples: least squares of relative errors, none of them negative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Sample = tuple[Mapping[str, float], float]
"""What was computed, in counts, and how many seconds it took."""


def seconds_of(counts: Mapping[str, float], constants: Mapping[str, float]) -> float:
    """Counts times constants; one that nobody has measured costs nothing."""
    return sum(count * constants.get(name, 0.0) for name, count in counts.items())


def fit(samples: Sequence[Sample], known: Mapping[str, float]) -> dict[str, float]:
    """The constants that the samples have beside the known ones.

    What the known ones do not explain of each sample is explained by the new ones, so that the squares of
    errors relative to the samples' seconds are smallest. Constants that would be negative are 0.
    """
    names = sorted({name for counts, _ in samples for name in counts if counts[name] and name not in known})
    rows = np.array([[counts.get(name, 0.0) / seconds for name in names] for counts, seconds in samples])
    rest = np.array([1 - seconds_of(counts, known) / seconds for counts, seconds in samples])
    return dict(zip(names, map(float, _not_negative(rows, rest)), strict=True))


def _not_negative(rows: Numbers, wanted: Numbers) -> Numbers:
    """Least squares with coefficients of at least 0 (Lawson and Hanson, 1974)."""
    scale = np.linalg.norm(rows, axis=0)
    scaled = rows / np.where(scale > 0, scale, 1)
    found = np.zeros(rows.shape[1])
    active: list[int] = []
    for _ in range(4 * len(found)):
        slope = scaled.T @ (wanted - scaled @ found)
        slope[active] = -1
        if len(active) == len(found) or slope.max() < 1e-9:
            break
        active.append(int(slope.argmax()))
        found = _inside(scaled, wanted, found, active)
    return found / np.where(scale > 0, scale, 1)


def _inside(rows: Numbers, wanted: Numbers, found: Numbers, active: list[int]) -> Numbers:
    """Least squares of the active columns; columns that would fall below 0 are taken out of them."""
    while active:
        best = np.zeros_like(found)
        best[active] = np.linalg.lstsq(rows[:, active], wanted, rcond=None)[0]
        if best[active].min() >= 0:
            return best
        falling = [place for place in active if best[place] < 0]
        step = min(found[place] / (found[place] - best[place]) for place in falling)
        found = found + step * (best - found)
        active[:] = [place for place in active if found[place] > 1e-15]
    return np.zeros_like(found)
