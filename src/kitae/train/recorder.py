"""Writes down what the loop does: to metrics.jsonl, which trackers follow, and to the person who watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any, Protocol

import torch

from kitae.backend.base import Backend
from kitae.train.batch import GlobalBatch
from kitae.train.evaluate import Evaluation
from kitae.train.metrics import MetricsLog, Record
from kitae.train.progress import Display, Standing
from kitae.train.state import TrainState
from kitae.train.step import Update
from kitae.train.throughput import UTILISATION_FORMULA, Throughput, seconds_left, throughput

Topology = dict[str, int | bool | str]
"""Sizes and kinds of parallelism, and of attention, as the first line of an attempt shows them."""
MAX_PEAK_MEASUREMENTS = 5
"""In one attempt; each takes a moment."""
DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "bf16-sr": torch.bfloat16,
    "autocast": torch.bfloat16,
}
"""What the products are in, by precision."""


class Recorder(Protocol):
    """Takes one attempt's events."""

    def start(self, step: int) -> None:
        """Begin an attempt at `step`."""
        ...

    def enter(self, phase: str | None, flops_per_token: int) -> None:
        """What follows belongs to a phase."""
        ...

    def update(
        self,
        state: TrainState,
        update: Update,
        learning_rate: float,
        batch: GlobalBatch[Any],
        seconds: float,
        peak_memory_bytes: int,
    ) -> None:
        """Record an update; memory is the most that any rank has held."""
        ...

    def evaluate(self, step: int, evaluation: Evaluation, seconds: float) -> None:
        """Record a held-out loss."""
        ...

    def has_evaluation(self, step: int) -> bool:
        """Whether the held-out loss after `step` updates is recorded."""
        ...

    def note(self, record: Record) -> None:
        """Record something else."""
        ...

    def sync(self) -> None:
        """Wait until all records are on the disk."""
        ...


class SilentRecorder:
    """For the ranks that do not speak for all."""

    def start(self, step: int) -> None:
        """Nothing to write."""

    def enter(self, phase: str | None, flops_per_token: int) -> None:
        """Nothing to write."""

    def update(
        self,
        state: TrainState,
        update: Update,
        learning_rate: float,
        batch: GlobalBatch[Any],
        seconds: float,
        peak_memory_bytes: int,
    ) -> None:
        """Nothing to write."""

    def evaluate(self, step: int, evaluation: Evaluation, seconds: float) -> None:
        """Nothing to write."""

    def has_evaluation(self, step: int) -> bool:
        """No: only the rank that leads knows."""
        return False

    def note(self, record: Record) -> None:
        """Nothing to write."""

    def sync(self) -> None:
        """Nothing was written."""


@dataclass
class RunRecorder:
    """Writes for all ranks."""

    log: MetricsLog
    display: Display
    report: Callable[[str], None]
    backend: Backend
    precision: str
    flops_per_token: int
    """Of the phase that is trained."""
    steps: int
    devices: int
    """Devices that train together."""
    topology: Topology
    """How they share the work."""
    phase: str | None = None
    peak_flops: float = field(init=False)
    _peaks_measured: int = field(init=False, default=1)
    _step_seconds: list[float] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.peak_flops = self.backend.peak_flops(DTYPES[self.precision])

    def start(self, step: int) -> None:
        """Begin an attempt at `step`; what the later numbers refer to stands here."""
        self._write(
            {
                "kind": "start",
                "step": step,
                "steps": self.steps,
                "attempt": self.log.attempts + 1,
                "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
                "backend": self.backend.name,
                "devices": self.devices,
                **self.topology,
                "threads": torch.get_num_threads(),
                "precision": self.precision,
                "flops_per_token": self.flops_per_token,
                "peak_flops": self.peak_flops,
                "utilisation_formula": UTILISATION_FORMULA,
            }
        )

    def enter(self, phase: str | None, flops_per_token: int) -> None:
        """Note which phase what follows belongs to."""
        self.phase, self.flops_per_token = phase, flops_per_token

    def update(
        self,
        state: TrainState,
        update: Update,
        learning_rate: float,
        batch: GlobalBatch[Any],
        seconds: float,
        peak_memory_bytes: int,
    ) -> None:
        """Record an update; the first one of an attempt also warms up, and is marked."""
        first = not self._step_seconds
        self._step_seconds.append(seconds)
        speed = self._speed(batch, seconds)
        self._write(
            {
                "kind": "train",
                "step": state.step,
                **self._of_phase(),
                "loss": update.loss,
                "learning_rate": learning_rate,
                "grad_norm": update.grad_norm,
                "step_seconds": seconds,
                "first_step": first,
                "padded_tokens": batch.padded_tokens,
                "real_tokens": batch.real_tokens,
                "target_tokens": batch.target_tokens,
                "rows": batch.rows,
                "total_padded_tokens": state.padded_tokens,
                "total_real_tokens": state.real_tokens,
                "consumed_samples": state.consumed_samples,
                **asdict(speed),
                "peak_flops": self.peak_flops,
                "peak_memory_bytes": peak_memory_bytes,
            }
        )
        left = seconds_left(self._usual_seconds(), self.steps - state.step)
        self.display.show(
            Standing(state.step, self.steps, update.loss, learning_rate, speed.tokens_per_s, left)
        )

    def evaluate(self, step: int, evaluation: Evaluation, seconds: float) -> None:
        """Record a held-out loss."""
        self._write(
            {
                "kind": "evaluation",
                "step": step,
                **self._of_phase(),
                "loss": evaluation.loss,
                **evaluation.metrics,
                evaluation.counted: evaluation.tokens,
                "rows": len(evaluation.row_tokens),
                "seconds": seconds,
            }
        )
        self.report(
            f"held-out loss {evaluation.loss:.4f}{_accuracies(evaluation)} after step {step} "
            f"({evaluation.tokens:,} {evaluation.counted})"
        )

    def has_evaluation(self, step: int) -> bool:
        """Whether the held-out loss after `step` updates is in the file."""
        return self.log.has_evaluation(step, self.phase)

    def note(self, record: Record) -> None:
        """Write it as it is."""
        self._write(record)

    def sync(self) -> None:
        """Wait until all lines are on the disk."""
        self.log.sync()

    def _of_phase(self) -> Record:
        return {} if self.phase is None else {"phase": self.phase}

    def _speed(self, batch: GlobalBatch[Any], seconds: float) -> Throughput:
        """Speed of an update; a peak that it beats was measured on a busy machine, and is measured again."""
        speed = self._throughput(batch, seconds)
        if speed.utilisation > 1 and self._peaks_measured < MAX_PEAK_MEASUREMENTS:
            self._peaks_measured += 1
            self.peak_flops = max(self.peak_flops, self.backend.peak_flops(DTYPES[self.precision]))
            speed = self._throughput(batch, seconds)
        return speed

    def _throughput(self, batch: GlobalBatch[Any], seconds: float) -> Throughput:
        return throughput(
            padded_tokens=batch.padded_tokens,
            real_tokens=batch.real_tokens,
            seconds=seconds,
            devices=self.devices,
            flops_per_token=self.flops_per_token,
            peak_flops=self.peak_flops,
        )

    def _usual_seconds(self) -> float:
        steady = self._step_seconds[1:][-100:] or self._step_seconds
        return sum(steady) / len(steady)

    def _write(self, record: Record) -> None:
        self.log.write(record)


def _accuracies(evaluation: Evaluation) -> str:
    """The shares among the metrics, in words."""
    shares = {name: value for name, value in evaluation.metrics.items() if name.endswith("accuracy")}
    return "".join(f", {name.replace('_', ' ')} {100 * value:.1f} %" for name, value in shares.items())
