"""Phases of a training, and seconds of all that is not an update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from kitae.errors import RecipeError
from kitae.model.memory import count_parameters
from kitae.plan.failures import Failures
from kitae.plan.machine import Machine
from kitae.plan.step_time import StepTime, step_time
from kitae.plan.work import Work
from kitae.recipe.base import Duration

HOUR = 3600
CREATE_S = 1500.0
"""Of a cluster with a head node: 25 minutes were seen. Nothing of it is nodes."""
TEARDOWN_S = 600.0
"""Of the same, after the nodes are gone: an assumption."""
TEXT_BYTES_PER_S = 1e6
"""Text that one core tokenizes and packs: 50 MB/s by 48 workers were published for another trainer."""
COMPILE_S = {"xla": 600.0, "neuron": 600.0, "cuda": 60.0, "cpu": 0.0}
"""Of all graphs, before the first step: 10 minutes were seen for Llama 3.1 8B on four trn1.32xlarge."""
START_S = {"xla": 120.0, "neuron": 120.0, "cuda": 60.0, "cpu": 10.0}
"""From the start of the processes to the first step, without compilation."""
WARM_UP_S = {"xla": 60.0, "neuron": 60.0, "cuda": 10.0, "cpu": 0.0}
"""What the first update takes longer than others: 59 s were seen for Llama 3.1 8B on four trn1.32xlarge."""
IDLE_TAIL_S = 600.0
"""Rented nodes stay for so long after the last job: ParallelCluster's default."""
SAVE_BYTES = 12
"""Of a parameter in a checkpoint: its weight and two moments in fp32."""
SAVE_BYTES_PER_S = 5e8
"""What the file system that all nodes share takes of a checkpoint: an assumption."""
HIDDEN_SAVE = 23.6
"""How many times shorter the training waits for a checkpoint that is written beside it: published for another
trainer (148.8 s became 6.3 s)."""
LEAST_LEFT = 1e-3
"""A training that failures leave less of is no plan."""
FORWARD = {"none": 1 / 3, "selective": 1 / 3, "full": 1 / 4}
"""Share of the forward pass in a training's products, by recomputation."""


class Stretch(NamedTuple):
    """One phase as a recipe has it."""

    name: str | None
    work: Work
    length: Duration
    save_every: Duration | None = None
    """Beside the save at the end."""
    look_every: Duration | None = None
    """Evaluations beside those before and after."""
    heldout_rows: int = 0
    """Of one evaluation; 0: nothing is evaluated, or nobody knows."""
    saves_beside: bool = False
    """Whether checkpoints are written while the training goes on."""


@dataclass(frozen=True)
class Phase:
    """One phase of the training."""

    name: str | None
    work: Work
    steps: int | None
    """Updates; None where the duration is in epochs of a text that nobody has counted yet."""
    saves: int
    time: StepTime
    looks: int = 0
    """Evaluations."""
    heldout_rows: int = 0
    """Of each."""
    saves_beside: bool = False
    save_bytes_per_s: float | None = None
    """What was measured of the disk."""

    @property
    def tokens_per_step(self) -> int:
        """Positions of an update, padded ones included."""
        return self.work.global_rows * self.work.length

    @property
    def tokens_per_day(self) -> float:
        """In the middle of the interval."""
        return self.tokens_per_step / self.time.seconds * 24 * HOUR

    @property
    def save_s(self) -> float:
        """All saves together, as far as the training waits for them."""
        return self.saves * one_save_s(self.work, self.saves_beside, self.save_bytes_per_s)

    @property
    def evaluate_s(self) -> float:
        """All evaluations together: forward passes."""
        time, rows = self.time, self.heldout_rows / self.work.global_rows
        products = sum(time.products.values()) * FORWARD[self.work.recompute]
        return self.looks * rows * (products + (time.weights + time.dropout + time.tensor_parallel) / 3)

    def lost_s(self, nodes: int, mtbf_hours: float) -> float:
        """What failures cost on average: work since the last checkpoint, and restarts.

        Raises `RecipeError` where hardly anything would be left.
        """
        updates = (self.steps or 0) * self.time.seconds
        if mtbf_hours == float("inf") or not updates:
            return 0.0
        failures = failures_of(self.work, nodes, mtbf_hours, self.saves_beside)
        apart = updates / self.saves
        left = failures.goodput(apart)
        if left < LEAST_LEFT:
            raise RecipeError(
                f"--mtbf-hours: one of {nodes} nodes would fail every {span(failures.mtbf_s)}, and a "
                f"checkpoint comes every {span(apart)}: this would hardly ever end; set checkpoint.every to "
                f"{span(failures.best_interval_s)} or so, in steps"
            )
        return max(0.0, updates / left - updates - self.save_s)


def save_bytes(work: Work) -> int:
    """Of one checkpoint; weights that are kept in bf16 alone are saved in it."""
    return count_parameters(work.parameters) * (SAVE_BYTES - 2 * (work.precision == "bf16-sr"))


def one_save_s(work: Work, beside: bool, bytes_per_s: float | None = None) -> float:
    """What a training waits for one checkpoint, where so many bytes a second are written."""
    whole = save_bytes(work) / (bytes_per_s or SAVE_BYTES_PER_S)
    return whole / HIDDEN_SAVE if beside else whole


def failures_of(work: Work, nodes: int, mtbf_hours: float, beside: bool) -> Failures:
    """Of so many nodes. A restart starts the processes, loads a checkpoint and warms up."""
    return Failures(
        mtbf_s=mtbf_hours * HOUR / nodes,
        save_s=one_save_s(work, beside),
        restart_s=START_S[work.backend] + WARM_UP_S[work.backend] + one_save_s(work, beside=False),
    )


def phase_of(stretch: Stretch, machine: Machine, rows: int | None) -> Phase:
    """What a stretch takes; `rows` of an epoch, where they are known."""
    steps = steps_of(stretch.length, stretch.work, rows)
    saves, looks = (
        1 + _times(every, steps, stretch.work, rows) for every in (stretch.save_every, stretch.look_every)
    )
    return Phase(
        name=stretch.name,
        work=stretch.work,
        steps=steps,
        saves=saves,
        time=step_time(stretch.work, machine),
        looks=1 + looks if stretch.heldout_rows else 0,
        heldout_rows=stretch.heldout_rows,
        saves_beside=stretch.saves_beside,
        save_bytes_per_s=machine.save_bytes_per_s,
    )


def _times(every: Duration | None, steps: int | None, work: Work, rows: int | None) -> int:
    apart = steps_of(every, work, rows) if every is not None else None
    return steps // apart if steps and apart else 0


def steps_of(length: Duration, work: Work, rows: int | None) -> int | None:
    """Updates of a duration; None for epochs of rows that nobody has counted."""
    if length.unit == "epochs" and rows is None:
        return None
    return length.steps(
        tokens_per_step=work.global_rows * work.length, samples=rows or 0, global_batch_size=work.global_rows
    )


def around_s(
    backend: str, instance_cores: int, *, text_bytes: int | None, cluster: bool
) -> Mapping[str, float]:
    """Seconds of what comes before and after the updates, in the order in which it comes."""
    return {
        "create": CREATE_S if cluster else 0.0,
        "prepare": (text_bytes or 0) / (TEXT_BYTES_PER_S * instance_cores),
        "compile": COMPILE_S[backend],
        "start-up": START_S[backend] + WARM_UP_S[backend],
        "idle": IDLE_TAIL_S,
        "teardown": TEARDOWN_S if cluster else 0.0,
    }


def span(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{ceil(seconds)} s" if seconds >= 10 else f"{seconds:.2g} s"
