"""Where a recipe runs: on this machine, on nodes of a Slurm cluster, or on one behind a head node."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from kitae.recipe.base import FieldError, NonEmpty, Positive, Section

TIME_PATTERN = r"^(\d+-\d{1,2}(:\d{2}){0,2}|\d+(:\d{2}){0,2})$"
ClusterTime = Annotated[str, Field(pattern=TIME_PATTERN)]
"""A time as Slurm takes it: minutes[:seconds], hours:minutes:seconds or days-hours[:minutes[:seconds]]."""
NodeCount = Annotated[int, Field(ge=1, le=100_000)]
"""More nodes than any cluster has are a slip of the finger."""

OWN_DIRECTIVES = (
    *(
        "nodes",
        "ntasks",
        "ntasks-per-node",
        "job-name",
        "output",
        "error",
        "open-mode",
        "requeue",
        "no-requeue",
    ),
    *("signal", "dependency", "chdir", "comment", "time", "partition", "account", "qos", "reservation"),
    *("constraint", "gres", "exclusive", "array", "wrap", "parsable", "no-kill", "no-requeue"),
)
"""Options of sbatch that kitae sets itself, or that would break what it does."""


def seconds_of(time: str) -> int:
    """Seconds of a `ClusterTime`."""
    days, dash, clock = time.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    return int(days or 0) * 86400 + sum(part * unit for part, unit in zip(parts, units, strict=False))


class NodeRange(Section):
    """As many nodes as there are, within bounds."""

    min: NodeCount
    """Fewest to train on."""
    max: NodeCount
    """Most to train on."""

    @model_validator(mode="after")
    def _check(self) -> NodeRange:
        if self.min > self.max:
            raise FieldError("min", f"{self.min} is more than max ({self.max}); lower it")
        return self


class TargetConfig(Section):
    """Where the stages run. What is learned does not depend on it."""

    kind: Literal["local", "slurm", "ssh"] = "local"
    """local: here; slurm: submitted from here, as jobs; ssh: submitted on a head node."""
    backend: Literal["auto", "cpu", "cuda", "xla", "neuron"] = "auto"
    """What trains: cpu, cuda, xla (torch-xla: Trn1) or neuron (TorchNeuron: Trn2 and Trn3); auto: what the
    machine has."""
    new_graphs: Literal["error", "warn"] = "error"
    """What follows when xla has to compile a graph in the middle of a training: error stops and names what
    changed, warn goes on."""
    nodes: NodeCount | NodeRange = 1
    """Nodes to train on: a number, or {min: 2, max: 4} to go on with fewer when some fail or do not come."""
    processes_per_node: Positive | Literal["auto"] = "auto"
    """Processes on each node; auto: as many as it has devices, 1 on a CPU."""
    partition: NonEmpty | None = None
    """Slurm's partition; null: its default."""
    account: NonEmpty | None = None
    """Account that is charged."""
    qos: NonEmpty | None = None
    """Quality of service."""
    reservation: NonEmpty | None = None
    """Reservation to use."""
    constraint: NonEmpty | None = None
    """Features that nodes must have."""
    gres: NonEmpty | None = None
    """Generic resources of each node, such as `gpu:8`."""
    exclusive: bool = True
    """Take nodes whole; false: only what is asked for by gres and extra."""
    time_limit: ClusterTime | None = None
    """Longest time of one job, as Slurm takes it: `90` (minutes), `12:00:00`, `2-00:00:00`; a training that
    needs longer is saved before and goes on in the same job, queued again. null: the partition's."""
    extra: list[NonEmpty] = Field(default=[])
    """Further options of sbatch, such as `--mem=0`."""
    setup: list[NonEmpty] = Field(default=[])
    """Shell lines before kitae starts on a node, such as `module load aws-neuron`."""
    signal_before_s: Annotated[int, Field(ge=1, le=65535)] = 120
    """Seconds before the time limit at which a training saves and is queued again."""
    max_attempts: Positive = 10
    """How often a training is begun, at most, when nodes or processes of it fail; what is planned, such as a
    time limit or a preemption, does not count."""
    node_check: bool | Literal["auto"] = "auto"
    """Whether nodes are tried before each start of a training: products, memory, disks, clocks and what goes
    between them; a broken or slow one (1.3 x) is named and left out. auto: when several are taken whole."""
    wait_limit: ClusterTime | None = None
    """How long a job may wait for nodes before it is given up, as time_limit; null: for ever."""
    price_per_node_hour: Annotated[float, Field(gt=0)] | None = None
    """US dollars for a node and hour; null: unknown."""
    host: NonEmpty | None = None
    """Of ssh: the head node, as the system's ssh knows it."""
    folder: NonEmpty | None = None
    """Of ssh: a folder there that all nodes see."""
    python: NonEmpty | None = None
    """Of ssh: an interpreter there, such as `/opt/venv/bin/python`, whose packages are used with this kitae;
    null: an environment with the versions that are installed here is made there, once."""

    @model_validator(mode="after")
    def _check(self) -> TargetConfig:
        if self.kind == "local" and self.nodes != 1:
            raise FieldError("nodes", "several nodes need target.kind slurm or ssh; this is one machine")
        for name in ("host", "folder"):
            if self.kind == "ssh" and getattr(self, name) is None:
                raise FieldError(name, f"target.kind ssh needs it: {_help(name)}")
        for index, option in enumerate(self.extra):
            reason = _not_an_option(option)
            if reason is not None:
                raise FieldError(f"extra.{index}", reason)
        return self

    @property
    def least(self) -> int:
        """Fewest nodes to train on."""
        return self.nodes if isinstance(self.nodes, int) else self.nodes.min

    @property
    def most(self) -> int:
        """Most nodes to train on."""
        return self.nodes if isinstance(self.nodes, int) else self.nodes.max


def _help(name: str) -> str:
    return (TargetConfig.model_fields[name].description or "").removeprefix("Of ssh: ").rstrip(".")


def _not_an_option(text: str) -> str | None:
    """Why this cannot stand in `extra`."""
    match = re.fullmatch(r"--([a-z][a-z-]*)(?:=[^\n]*)?", text)
    if match is None:
        return f"{text!r} is no long option of sbatch; write it as --name or --name=value"
    if match[1] not in OWN_DIRECTIVES:
        return None
    key = match[1].replace("-", "_").replace("time", "time_limit")
    instead = f"write target.{key}" if key in TargetConfig.model_fields else "take it out"
    return f"kitae sets --{match[1]} itself; {instead}"
