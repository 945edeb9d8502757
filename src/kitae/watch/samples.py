"""What the machines of a run told of themselves: `devices/<node>.jsonl`, a sample a line.

A line covers `period_s` up to `time`. Cores lie in it as columns, `{"index": [...], "utilisation": [...]}`,
as a machine may have many; a column that nothing tells is left out. `<node>.now.json` is the newest sample,
which is there at once, while the lines of a long run stand for ever longer times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from kitae.watch.tail import lines_from_end

FOLDER = "devices"
"""Of a run."""
NOW = ".now.json"
"""What the name of a file with the newest sample ends in."""
LINES = ".jsonl"
_NEWEST_BYTES = 1 << 20
"""How far back a newest line is looked for."""

_NONE: Mapping[str, int] = MappingProxyType({})
One = TypeVar("One")


@dataclass(frozen=True)
class CoreSample:
    """A core that computes: a NeuronCore, a GPU, or, on a machine without either, a core of the CPU."""

    index: int
    utilisation: float | None = None
    """0 to 1, mean of the period."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    flops_per_s: float | None = None


@dataclass(frozen=True)
class DeviceSample:
    """A chip or card, with what its tool counts."""

    index: int
    name: str = ""
    ecc_corrected: int | None = None
    """Errors in memory that were mended."""
    ecc_uncorrected: int | None = None
    """Errors in memory that were not."""
    temperature_c: float | None = None
    power_w: float | None = None


@dataclass(frozen=True)
class HostSample:
    """The machine around them."""

    cpu_utilisation: float | None = None
    """0 to 1, of all cores, mean of the period."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    disk_free_bytes: int | None = None
    """Of the disk that the run lies on."""
    disk_total_bytes: int | None = None


@dataclass(frozen=True)
class ProcessSample:
    """A process of the training on this machine."""

    pid: int
    tag: str = ""
    """What it calls itself: NEURON_PROCESS_TAG, or its place in the training."""
    cpu_utilisation: float | None = None
    """In cores: 2.0 are two cores that it keeps busy."""
    memory_used_bytes: int | None = None
    """On the devices where the sampler sees those, else of the host."""
    cores: tuple[int, ...] = ()
    """Indices of the cores that it uses, as far as they are known."""


@dataclass(frozen=True)
class Sample:
    """One machine over one period."""

    time: float
    """When the period ended, in seconds since 1970."""
    period_s: float
    source: str
    """What told of the cores: `neuron-monitor`, `nvml` or `host`."""
    node: str
    host: HostSample = HostSample()
    cores: tuple[CoreSample, ...] = ()
    devices: tuple[DeviceSample, ...] = ()
    processes: tuple[ProcessSample, ...] = ()
    errors: Mapping[str, int] = field(default_factory=lambda: _NONE)
    """Errors of runtimes since the sampler began, by kind."""
    notes: tuple[str, ...] = ()
    """What could not be read."""

    @property
    def utilisation(self) -> float | None:
        """Mean of the cores that tell theirs, 0 to 1."""
        known = [core.utilisation for core in self.cores if core.utilisation is not None]
        return sum(known) / len(known) if known else None

    def as_json(self) -> dict[str, Any]:
        """JSON values; what is not known is left out."""
        values = {
            "time": round(self.time, 3),
            "period_s": self.period_s,
            "source": self.source,
            "node": self.node,
            "host": _row(self.host),
            "cores": _columns(self.cores),
            "devices": [_row(one) for one in self.devices],
            "processes": [_row(one) for one in self.processes],
            "errors": dict(self.errors),
            "notes": list(self.notes),
        }
        return {name: value for name, value in values.items() if value or name in ("time", "period_s")}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Sample:
        """Of `as_json`. Raises ValueError for values that are none of a sample."""
        try:
            return cls(
                time=float(values["time"]),
                period_s=float(values["period_s"]),
                source=str(values.get("source", "")),
                node=str(values.get("node", "")),
                host=_of_row(HostSample, values.get("host", {})),
                cores=_of_columns(values.get("cores", {})),
                devices=tuple(_of_row(DeviceSample, one) for one in values.get("devices", ())),
                processes=tuple(
                    _of_row(ProcessSample, {**one, "cores": tuple(one.get("cores", ()))})
                    for one in values.get("processes", ())
                ),
                errors={str(kind): int(count) for kind, count in values.get("errors", {}).items()},
                notes=tuple(map(str, values.get("notes", ()))),
            )
        except (AttributeError, KeyError, OverflowError, TypeError) as error:
            raise ValueError(f"no sample: {error}") from error


def read_samples(run: Path) -> dict[str, list[Sample]]:
    """All samples of a run by node, in the order of time; what a kill left half-written is passed over."""
    found = {node_of(path): samples_in(path) for path in sorted((run / FOLDER).glob(f"*{LINES}"))}
    return {node: samples for node, samples in found.items() if samples}


def latest_samples(run: Path) -> dict[str, Sample]:
    """The newest sample of each node; only the ends of files are read."""
    folder = run / FOLDER
    names = {node_of(path) for ending in (LINES, NOW) for path in folder.glob(f"*{ending}")}
    newest = {name: _newest(folder, name) for name in sorted(names)}
    return {name: sample for name, sample in newest.items() if sample is not None}


def lines_file(run: Path, node: str) -> Path:
    """Where the samples of a node lie."""
    return run / FOLDER / f"{_safe(node)}{LINES}"


def now_file(run: Path, node: str) -> Path:
    """Where its newest one lies."""
    return run / FOLDER / f"{_safe(node)}{NOW}"


def node_of(path: Path) -> str:
    """The node that a file is named after."""
    return path.name.removesuffix(LINES).removesuffix(NOW)


def mean_of(samples: Sequence[Sample]) -> Sample:
    """Samples of one node that follow each other, as one over all of their time."""
    last = samples[-1]
    means = {index: _mean_core(ones) for index, ones in _by_index(samples).items()}
    busy = _mean((one.host.cpu_utilisation, one.period_s) for one in samples)
    return Sample(
        **{
            **{one.name: getattr(last, one.name) for one in fields(last)},
            "period_s": sum(one.period_s for one in samples),
            "host": HostSample(**{**vars(last.host), "cpu_utilisation": busy}),
            "cores": tuple(means[index] for index in sorted(means)),
            "notes": tuple(dict.fromkeys(note for one in samples for note in one.notes)),
        }
    )


def _by_index(samples: Sequence[Sample]) -> dict[int, list[tuple[CoreSample, float]]]:
    found: dict[int, list[tuple[CoreSample, float]]] = {}
    for sample in samples:
        for core in sample.cores:
            found.setdefault(core.index, []).append((core, sample.period_s))
    return found


def _mean_core(cores: Sequence[tuple[CoreSample, float]]) -> CoreSample:
    """Of one core, with the seconds that each stands for; of memory the most."""
    last, _ = cores[-1]
    used = [core.memory_used_bytes for core, _ in cores if core.memory_used_bytes is not None]
    return CoreSample(
        index=last.index,
        utilisation=_mean((core.utilisation, seconds) for core, seconds in cores),
        memory_used_bytes=max(used, default=None),
        memory_total_bytes=last.memory_total_bytes,
        flops_per_s=_mean((core.flops_per_s, seconds) for core, seconds in cores),
    )


def _mean(values: Iterable[tuple[float | None, float]]) -> float | None:
    """Of values that stand for so many seconds each."""
    known = [(value, seconds) for value, seconds in values if value is not None]
    total = sum(seconds for _, seconds in known)
    return sum(value * seconds for value, seconds in known) / total if total > 0 else None


def samples_in(path: Path) -> list[Sample]:
    """Those of one file, in the order of time."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    found = [sample for line in text.split("\n") if (sample := _sample_of(line)) is not None]
    return sorted(found, key=lambda one: one.time)


def _newest(folder: Path, name: str) -> Sample | None:
    """Of a node; the file with the newest one may be older than the lines where a disk was full."""
    try:
        shown = _sample_of((folder / f"{name}{NOW}").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        shown = None
    lines = lines_from_end(folder / f"{name}{LINES}", _NEWEST_BYTES)
    recorded = next((one for line in lines if (one := _sample_of(line)) is not None), None)
    return max((one for one in (shown, recorded) if one), key=lambda one: one.time, default=None)


def _sample_of(line: str) -> Sample | None:
    try:
        values = json.loads(line)
        return Sample.from_json(values) if isinstance(values, dict) else None
    except (ValueError, RecursionError):
        return None


def _safe(node: str) -> str:
    """As a file's name; machines are called such names anyway."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", node).lstrip(".") or "node"


def _row(one: Any) -> dict[str, Any]:
    return {name: _short(value) for name, value in vars(one).items() if value not in (None, "", ())}


def _short(value: Any) -> Any:
    """A number with the digits that mean something; JSON knows no infinite ones."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.5g}") if isfinite(value) else None


def _of_row(kind: Callable[..., One], values: Mapping[str, Any]) -> One:
    """Values that a later kitae may have added are passed over."""
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in known})


def _columns(cores: Sequence[CoreSample]) -> dict[str, list[Any]]:
    columns = {one.name: [_short(getattr(core, one.name)) for core in cores] for one in fields(CoreSample)}
    return {name: values for name, values in columns.items() if any(value is not None for value in values)}


def _of_columns(columns: Mapping[str, Sequence[Any]]) -> tuple[CoreSample, ...]:
    names = [one.name for one in fields(CoreSample) if one.name in columns]
    rows = zip(*(columns[name] for name in names), strict=True)
    return tuple(CoreSample(**dict(zip(names, row, strict=True))) for row in rows)
