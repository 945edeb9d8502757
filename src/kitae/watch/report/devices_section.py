"""How the machines were used: utilisation and memory by node over time, every core as a row of colours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kitae.watch.reading import thinned
from kitae.watch.report.blocks import Block, Chart, Table, Trace, Words
from kitae.watch.report.core_heat import heat, mean_use, weighted_mean
from kitae.watch.report.figures import NONE, number, percent, seconds, size
from kitae.watch.report.run_view import RunView
from kitae.watch.samples import Sample, read_samples

Nodes = Mapping[str, Sequence[Sample]]
_CURVES = 16
"""Nodes that have curves; of more, those that were used least."""
_POINTS = 2000
"""Of the curves of a chart together."""
_TABLE = 64
_SOURCES = {"neuron-monitor": "NeuronCores", "nvml": "GPUs", "host": "cores of the CPUs"}


def devices(view: RunView) -> Iterator[Block]:
    """What the samples of a run tell; nothing where none were taken."""
    nodes = read_samples(view.path)
    if not nodes:
        return
    yield from _told(nodes)
    yield _table(nodes)
    shown = _least_used(nodes)
    points = max(50, _POINTS // (len(shown) * view.runs))
    yield from (chart for kind in KINDS if (chart := _chart(kind, shown, points)) is not None)
    yield from heat(nodes, view.runs)
    notes = dict.fromkeys(note for samples in nodes.values() for one in samples[-50:] for note in one.notes)
    for note in list(notes)[:8]:
        yield Words(f"What could not be read: {note}")


def _told(nodes: Nodes) -> Iterator[Block]:
    newest = [samples[-1] for samples in nodes.values()]
    kinds = dict.fromkeys(_SOURCES.get(one.source, one.source) for one in newest)
    cores = sum(len(one.cores) for one in newest)
    begin = min(samples[0].time - samples[0].period_s for samples in nodes.values())
    ended = max(one.time for one in newest)
    periods = sorted({one.period_s for one in newest})
    yield Words(
        f"{number(cores)} {' and '.join(kinds)} of {number(len(nodes))} "
        f"{'machine' if len(nodes) == 1 else 'machines'} were watched over {seconds(ended - begin)}; "
        f"the newest samples stand for {seconds(periods[-1])} each."
    )


def _use(sample: Sample) -> float | None:
    return sample.utilisation


def _memory(sample: Sample) -> float | None:
    """Of the devices; of the host, where it computes itself."""
    known = [core.memory_used_bytes for core in sample.cores if core.memory_used_bytes is not None]
    return sum(known) if known and sample.source != "host" else sample.host.memory_used_bytes


def _least_used(nodes: Nodes) -> Nodes:
    order = sorted(nodes, key=lambda node: (mean_use(nodes[node]) or 0.0, node))
    kept = set(order[:_CURVES])
    return {node: samples for node, samples in nodes.items() if node in kept}


def _table(nodes: Nodes) -> Table:
    order = sorted(nodes, key=lambda node: (mean_use(nodes[node]) or 0.0, node))[:_TABLE]
    more = f" (the {_TABLE} that were used least, of {len(nodes)})" if len(nodes) > _TABLE else ""
    head = (
        "machine",
        "cores",
        "use, mean",
        "memory, most",
        "CPU, mean",
        "disk free, least",
        "errors",
        "ECC mended",
        "ECC not",
    )
    return Table(
        f"machines, the least used first{more}", head, tuple(_row(node, nodes[node]) for node in order)
    )


def _row(node: str, samples: Sequence[Sample]) -> tuple[str, ...]:
    last, weights = samples[-1], [one.period_s for one in samples]
    memory = [used for one in samples if (used := _memory(one)) is not None]
    free = [one.host.disk_free_bytes for one in samples if one.host.disk_free_bytes is not None]
    return (
        node,
        number(len(last.cores)),
        percent(mean_use(samples)),
        size(max(memory, default=None)),
        percent(weighted_mean([one.host.cpu_utilisation for one in samples], weights)),
        size(min(free, default=None)),
        ", ".join(f"{kind} {count:,}" for kind, count in last.errors.items() if count) or "0",
        _ecc([one.ecc_corrected for one in last.devices]),
        _ecc([one.ecc_uncorrected for one in last.devices]),
    )


def _ecc(counts: Sequence[int | None]) -> str:
    known = [count for count in counts if count is not None]
    return number(sum(known)) if known else NONE


@dataclass(frozen=True)
class Kind:
    """A chart of what samples tell."""

    key: str
    title: str
    y: str
    value: Callable[[Sample], float | None]
    show: Callable[[float | None], str]
    share: bool = False


KINDS = (
    Kind(
        "device-use", "Utilisation of the cores, mean of a machine", "share of 1", _use, percent, share=True
    ),
    Kind("device-memory", "Memory in use", "bytes", _memory, size),
)
"""In the order of the report."""


def _chart(kind: Kind, nodes: Nodes, points: int) -> Chart | None:
    traces, told = [], []
    for place, (node, samples) in enumerate(nodes.items()):
        pairs = [(1000 * one.time, found) for one in samples if (found := kind.value(one)) is not None]
        xs, ys = thinned([x for x, _ in pairs], [float(y) for _, y in pairs], points)
        if xs:
            traces.append(Trace(node, xs, ys, run=place))
            told.append(f"{node}: between {kind.show(min(ys))} and {kind.show(max(ys))}")
    if not traces:
        return None
    summary = "; ".join(told[:8])
    return Chart(
        kind.key,
        kind.title,
        "time (UTC)",
        kind.y,
        tuple(traces),
        summary,
        dates=True,
        share=kind.share,
        units=not kind.share,
    )
