"""Every core of a training's machines as a row of colours over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kitae.watch.report.blocks import Heat
from kitae.watch.report.figures import percent
from kitae.watch.samples import Sample

Nodes = Mapping[str, Sequence[Sample]]
_CELLS, _COLUMNS, _ROWS = 60_000, 240, 1024
"""Of the picture, at most."""


def weighted_mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """Of what is known, by weight; None where nothing is."""
    known = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None


def mean_use(samples: Sequence[Sample]) -> float | None:
    """Of all of their cores and time, 0 to 1."""
    return weighted_mean([one.utilisation for one in samples], [one.period_s for one in samples])


def heat(nodes: Nodes, runs: int = 1) -> Iterator[Heat]:
    """A row for each core; for each node, where there are too many. `runs`: that share the report."""
    cores = sum(len(samples[-1].cores) for samples in nodes.values())
    if cores < 2:
        return
    by_core = cores <= _ROWS // runs
    rows = cores if by_core else min(len(nodes), _ROWS)
    columns = max(1, min(_COLUMNS, _CELLS // runs // rows, max(len(samples) for samples in nodes.values())))
    begin = min(samples[0].time - samples[0].period_s for samples in nodes.values())
    width = (max(samples[-1].time for samples in nodes.values()) - begin) / columns
    middles = [begin + (place + 0.5) * width for place in range(columns)]
    names: list[str] = []
    values: list[list[float | None]] = []
    for node, samples in list(nodes.items())[:_ROWS]:
        found = _covering(samples, middles, width)
        for name, row in _rows(node, found, by_core, several=len(nodes) > 1):
            names.append(name)
            values.append(row)
    yield Heat(
        "device-cores",
        "Utilisation of every core" if by_core else "Utilisation of every machine",
        "time (UTC)",
        "",
        [1000 * middle for middle in middles],
        names,
        values,
        _heat_summary(names, values),
    )


def _covering(samples: Sequence[Sample], middles: Sequence[float], width: float) -> list[list[Sample]]:
    """For each stretch of time the samples that end in it; else the one that covers its middle."""
    found: list[list[Sample]] = [[] for _ in middles]
    begin = middles[0] - width / 2
    for one in samples:
        found[min(len(middles) - 1, max(0, int((one.time - begin) / width - 1e-9)))].append(one)
    at = 0
    for place, middle in enumerate(middles):
        while at < len(samples) - 1 and samples[at].time < middle:
            at += 1
        if not found[place] and samples[at].time - samples[at].period_s <= middle <= samples[at].time:
            found[place].append(samples[at])
    return found


def _rows(
    node: str, columns: Sequence[Sequence[Sample]], by_core: bool, several: bool
) -> Iterator[tuple[str, list[float | None]]]:
    if not by_core:
        yield node, [mean_use(samples) for samples in columns]
        return
    tables = [
        [{core.index: core.utilisation for core in one.cores} for one in samples] for samples in columns
    ]
    indices = sorted({index for tables_ in tables for table in tables_ for index in table})
    for index in indices:
        known = ([table[index] for table in tables_ if table.get(index) is not None] for tables_ in tables)
        means = [sum(ones) / len(ones) if ones else None for ones in map(_numbers, known)]
        yield f"{node} core {index}" if several else f"core {index}", means


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _heat_summary(names: Sequence[str], values: Sequence[Sequence[float | None]]) -> str:
    means = [
        (sum(known) / len(known), name)
        for name, row in zip(names, values, strict=True)
        if (known := _numbers(row))
    ]
    if not means:
        return "nothing tells how the cores were used"
    (low, least), (high, most) = min(means), max(means)
    idle = sum(mean < 0.05 for mean, _ in means)
    return (
        f"least used: {least} ({percent(low)}); most: {most} ({percent(high)}); "
        f"{idle:,} of {len(means):,} were idle (under 5 %)"
    )
