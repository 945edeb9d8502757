"""What there is to see at one moment: everything that a picture is drawn of, without how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from statistics import median
from typing import Any

from kitae.watch.alarms import Alarm
from kitae.watch.outlook import Outlook
from kitae.watch.reading import Readings, kept
from kitae.watch.samples import Sample
from kitae.watch.speed import Speed, speed_of
from kitae.watch.status import Status
from kitae.watch.tail import Record
from kitae.watch.top.look import Axis
from kitae.watch.top.numbers import mean

POINTS = 400
"""Of a curve: two a column of dots on the widest of screens."""
CURVES = ("loss", "learning_rate", "grad_norm", "tokens_per_s", "step_seconds")
_AXIS_COLUMNS: dict[Axis, str] = {"steps": "step", "tokens": "total_padded_tokens", "time": "time"}


@dataclass(frozen=True)
class Curve:
    """Values, and where they stand on each axis."""

    xs: Mapping[Axis, Sequence[float]]
    ys: Sequence[float]


@dataclass(frozen=True)
class Ranks:
    """How long each rank computes in a step; the last that was told."""

    step: int
    seconds: Sequence[float]
    nodes: Sequence[str]
    slow: Mapping[int, float]
    """Ranks that others wait for, and how many times as long as those they compute."""

    @classmethod
    def of(cls, record: Record) -> Ranks:
        """A line of the metrics."""
        seconds = list(record["compute_seconds"])
        slow = {int(one["rank"]): float(one["ratio"]) for one in record.get("slow", ())}
        return cls(int(record["step"]), seconds, list(record.get("nodes", [""] * len(seconds))), slow)

    @cached_property
    def median_s(self) -> float:
        """Of all ranks."""
        return median(self.seconds)


@dataclass(frozen=True)
class Training:
    """What the metrics tell."""

    latest: Mapping[str, float] = field(default_factory=dict)
    """Loss, learning rate, ... of the last update."""
    heldout: float | None = None
    heldout_step: int | None = None
    speed: Speed = field(default_factory=Speed)
    curves: Mapping[str, Curve] = field(default_factory=dict)
    heldout_curve: Curve | None = None
    ranks: Ranks | None = None
    start: Record = field(default_factory=dict)
    """Of the newest attempt."""
    phase: str | None = None

    @classmethod
    def of(cls, readings: Readings) -> Training:
        """A picture of readings, which may grow afterwards."""
        train, evaluations = readings.train, readings.evaluations
        values = {name: train.last(name) for name in (*CURVES, "peak_memory_bytes", "total_real_tokens")}
        newest = evaluations[-1] if evaluations else {}
        return cls(
            latest={name: value for name, value in values.items() if value is not None},
            heldout=newest.get("loss"),
            heldout_step=newest.get("step"),
            speed=speed_of(train),
            curves={name: _curve(readings, name) for name in CURVES},
            heldout_curve=_heldout(readings),
            ranks=Ranks.of(readings.ranks[-1]) if readings.ranks else None,
            start=readings.starts[-1] if readings.starts else {},
            phase=readings.phases[-1][0] if readings.phases else None,
        )


def _curve(readings: Readings, name: str) -> Curve:
    ys = getattr(readings.train, name)
    places = kept(ys, POINTS)
    columns = {axis: getattr(readings.train, column) for axis, column in _AXIS_COLUMNS.items()}
    return Curve(
        {axis: [column[at] for at in places] for axis, column in columns.items()}, [ys[at] for at in places]
    )


def _heldout(readings: Readings) -> Curve | None:
    """Held-out losses stand where the update before them does."""
    ys = [float(one["loss"]) for one in readings.evaluations]
    if not ys:
        return None
    found = [readings.evaluations[at] for at in kept(ys, POINTS)]
    tokens = readings.train.total_padded_tokens
    xs: dict[Axis, list[float]] = {
        "steps": [float(one["step"]) for one in found],
        "tokens": [tokens[one["index"] - 1] if one["index"] else 0.0 for one in found],
        "time": [one["time"] for one in found],
    }
    return Curve(xs, [float(one["loss"]) for one in found])


@dataclass(frozen=True)
class Node:
    """A machine: its newest sample, and how busy its cores were before."""

    name: str
    sample: Sample
    past: tuple[float, ...] = ()
    """Mean utilisations of its cores, the newest one last."""

    @property
    def utilisation(self) -> float | None:
        """Mean over its cores."""
        return self.sample.utilisation

    @property
    def cores_per_device(self) -> int:
        """So many cores stand together; all of a machine without devices."""
        cores, devices = len(self.sample.cores), len(self.sample.devices)
        return cores // devices if devices and cores % devices == 0 and cores >= devices else max(1, cores)


@dataclass(frozen=True)
class Checkpoint:
    """A save that is there."""

    step: int
    size_bytes: int
    time: float
    """When it was complete, in seconds since 1970."""
    seconds: float | None = None
    """How long the training waited for it."""


@dataclass(frozen=True)
class Scene:
    """Everything at one moment."""

    title: str
    now: float
    """In seconds since 1970."""
    status: Status | None = None
    """None of a machine without a run."""
    outlook: Outlook = field(default_factory=Outlook)
    training: Training = field(default_factory=Training)
    nodes: tuple[Node, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    log: tuple[str, ...] = ()
    """Last lines of the rank that is looked at."""
    log_count: int = 0
    """Lines that were read of it since it was turned to."""
    rank: int = 0
    ranks_with_logs: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be read, in words."""
    read_share: float = 1.0
    """Of the metrics that have been read, 0 to 1: those of a long run take several looks."""
    gone: bool = False
    """The run's folder is there no more; what is shown is the last that was seen."""

    @property
    def cores(self) -> int:
        """That are sampled."""
        return sum(len(node.sample.cores) for node in self.nodes)

    @property
    def utilisation(self) -> float | None:
        """Of the sampled cores, as their machines tell; not of the peak."""
        cores = [core for node in self.nodes for core in node.sample.cores]
        return mean([core.utilisation for core in cores if core.utilisation is not None])

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            **({} if self.status is None else self.status.as_json()),
            "title": self.title,
            "time": self.now,
            "outlook": {**asdict(self.outlook), "budget_left_usd": self.outlook.budget_left_usd},
            "training": {
                **self.training.latest,
                "heldout_loss": self.training.heldout,
                "heldout_step": self.training.heldout_step,
                "phase": self.training.phase,
                **asdict(self.training.speed),
                "ranks": None if self.training.ranks is None else asdict(self.training.ranks),
            },
            "nodes": {node.name: node.sample.as_json() for node in self.nodes},
            "alarms": [alarm.as_json() for alarm in self.alarms],
            "checkpoints": [asdict(one) for one in self.checkpoints],
            "notes": list(self.notes),
            "gone": self.gone,
        }
