"""The training: resume, evaluate, update, save, until the last step or a signal.

The order at each step is update, evaluation, checkpoint, and each is written down when it is done. Everything
that the next update depends on is in the checkpoint; data order and learning rate follow from its counters.
So a run that is killed anywhere and started again is, on the same machine, the same to the bit.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from kitae.checkpoint.resume import Checkpoint, open_checkpoint
from kitae.data.cursor import Cursor
from kitae.errors import StoppedError, TrainingError
from kitae.model.flops import train_flops_per_token
from kitae.parallel.mesh import on_lead
from kitae.recipe.resolve import resolve
from kitae.train.batch import global_batch
from kitae.train.build import build_stepper
from kitae.train.evaluate import evaluate
from kitae.train.job import TrainJob, TrainResult
from kitae.train.lengths import Lengths, count_out
from kitae.train.metrics import MetricsLog
from kitae.train.progress import display
from kitae.train.recorder import Recorder, RunRecorder, SilentRecorder, Topology
from kitae.train.results import evaluation_path, finished_result, save_evaluation, write_run_results
from kitae.train.schedule import Schedule
from kitae.train.signals import StopRequested, StopSignals
from kitae.train.state import Saver, TrainState, begin_after, check_same_recipe, restore
from kitae.train.step import Stepper
from kitae.train.tensorboard import scalars


def train(job: TrainJob) -> TrainResult:
    """Train, or go on training, to the end of the recipe's duration.

    Raises `StoppedError` after a signal, `TrainingError` when a value is not finite, `RecipeError` when the
    folder's checkpoint is of another training, `StorageError` when the disk is full.
    """
    job = replace(job, recipe=resolve(job.recipe, backend=job.backend.name).recipe)
    lengths = count_out(job.recipe, samples=len(job.train), sequence_length=job.train.sequence_length)
    checkpoint = _newest(job)
    if checkpoint is not None:
        check_same_recipe(job, checkpoint)
        finished = on_lead(job.mesh, partial(finished_result, job, checkpoint, lengths))
        if finished is not None:
            return finished
    with StopSignals(job.mesh.control) as stop:
        stepper = build_stepper(job)
        state = TrainState()
        if checkpoint is not None:
            state = restore(stepper, checkpoint)
            job.report(f"going on from {checkpoint.path} after step {state.step} of {lengths.steps}")
        elif job.start is not None:
            state = begin_after(stepper, job.start, lengths.steps)
            job.report(
                f"beginning after step {state.step} of {lengths.steps}, with the state of {job.start.path}"
            )
        with ExitStack() as stack:
            recorder = _recorder(job, lengths, state.step, stack)
            run = _Run(job, lengths, stepper, state, recorder, stop, checkpoint.path if checkpoint else None)
            run.to_the_end()
    results = on_lead(job.mesh, partial(write_run_results, job, lengths))
    assert run.saved is not None
    resumed_from = checkpoint.step if checkpoint else None
    return TrainResult(state.step, run.saved, results, resumed_from, already_complete=False)


def _newest(job: TrainJob) -> Checkpoint | None:
    """Find the checkpoint to go on from; one rank looks and verifies, and all open the same one."""

    def find() -> Path | None:
        job.store.clean()
        found = job.store.latest()
        return None if found is None else found.path

    path = on_lead(job.mesh, find)
    return None if path is None else open_checkpoint(path, verify=False)


def _recorder(job: TrainJob, lengths: Lengths, step: int, stack: ExitStack) -> Recorder:
    """Open metrics, scalars and display, which `stack` closes again; only one rank writes."""
    if not job.mesh.leads:
        return SilentRecorder()
    log = stack.enter_context(MetricsLog(job.folder / "metrics.jsonl", step))
    events = scalars(job.folder / "tensorboard", enabled=job.recipe.tensorboard.enabled, resumed_step=step)
    stack.callback(events.close)
    return RunRecorder(
        log=log,
        display=stack.enter_context(display(job.report)),
        scalars=events,
        report=job.report,
        backend=job.backend,
        precision=job.recipe.training.precision,
        flops_per_token=train_flops_per_token(job.decoder.config, lengths.sequence_length),
        steps=lengths.steps,
        devices=job.mesh.control.size,
        topology=_topology(job),
    )


def _topology(job: TrainJob) -> Topology:
    parallel = job.recipe.parallel
    assert parallel.zero1 != "auto", "the recipe is resolved"
    return {
        "data_parallel_size": job.mesh.data.size,
        "tensor_parallel_size": job.mesh.tensor.size,
        "sequence_parallel": parallel.sequence_parallel,
        "zero1": parallel.zero1,
    }


@dataclass
class _Run:
    """One attempt."""

    job: TrainJob
    lengths: Lengths
    stepper: Stepper
    state: TrainState
    recorder: Recorder
    stop: StopSignals
    saved: Path | None
    """The newest checkpoint."""
    cursor: Cursor = field(init=False)
    schedule: Schedule = field(init=False)
    saver: Saver = field(init=False)
    saved_step: int = field(init=False)
    heldout_loss: tuple[int, float] | None = field(init=False, default=None)
    """The last one measured, and after which step."""

    def __post_init__(self) -> None:
        recipe = self.job.recipe
        self.cursor = Cursor(self.lengths.samples, recipe.seed)
        self.schedule = Schedule(
            recipe.schedule, recipe.optimizer.learning_rate, self.lengths.steps, self.lengths.warmup_steps
        )
        self.saver = Saver(self.job, self.stepper)
        self.saved_step = self.state.step

    def to_the_end(self) -> None:
        """Train until the last step is done, evaluated and saved. Raises `StoppedError` after a signal."""
        self.recorder.start(self.state.step)
        try:
            self._evaluate_when_due()
            while self.state.step < self.lengths.steps:
                self._update()
                self._evaluate_when_due()
                self._save_when_due()
        except StopRequested as request:
            raise self._stopped(str(request)) from None
        except TrainingError:  # all ranks have it, and what is being saved is of an earlier step
            self.job.store.wait()
            raise
        self._finish_save()

    def _update(self) -> None:
        self._at("an update")
        begin = time.perf_counter()
        state, number = self.state, self.state.step
        samples = self.cursor.samples(state.consumed_samples, self.lengths.rows_of(number))
        device = self.job.backend.device
        batch = global_batch(self.job.train, samples, self.lengths.micro_batch_size, device, self.job.mesh)
        rate = self.schedule.rate(number)
        update = self.stepper.update(batch, rate, step=number + 1, check=self.stop.check)
        state.step += 1
        state.consumed_samples += len(samples)
        state.padded_tokens += batch.padded_tokens
        state.real_tokens += batch.real_tokens
        seconds = time.perf_counter() - begin
        self.recorder.update(state, update, rate, batch, seconds, self._peak_memory_bytes())

    def _peak_memory_bytes(self) -> int:
        own = torch.tensor([self.job.backend.memory_bytes()])
        return int(self.job.mesh.control.all_reduce(own, "max").item())

    def _evaluate_when_due(self) -> None:
        step, heldout = self.state.step, self.job.heldout
        if heldout is None or not self._evaluation_due():
            return
        if on_lead(self.job.mesh, lambda: self.recorder.has_evaluation(step)):
            return
        self._at("held-out evaluation")
        begin = time.perf_counter()
        evaluation = evaluate(
            self.job.decoder,
            heldout,
            micro_batch_size=self.lengths.eval_micro_batch_size,
            max_rows=self.job.recipe.evaluation.max_rows,
            backend=self.job.backend,
            chunk_tokens=self.job.recipe.training.loss_chunk_tokens,
            check=self.stop.check,
            mesh=self.job.mesh,
        )
        if self.job.mesh.leads:
            save_evaluation(evaluation_path(self.job, step), evaluation)
        self.recorder.evaluate(step, evaluation, time.perf_counter() - begin)
        best = self.state.best_heldout_loss
        self.state.best_heldout_loss = evaluation.loss if best is None else min(best, evaluation.loss)
        self.heldout_loss = step, evaluation.loss

    def _evaluation_due(self) -> bool:
        """Before the first step, as often as asked for, after the last; and where the best is looked for."""
        step = self.state.step
        at_ends = step in (0, self.lengths.steps)
        return at_ends or _falls_on(step, self.lengths.eval_every) or self._best_wanted()

    def _best_wanted(self) -> bool:
        return self.job.recipe.checkpoint.keep_best and _falls_on(self.state.step, self.lengths.save_every)

    def _save_when_due(self) -> None:
        step = self.state.step
        self.saved = self.job.store.check() or self.saved
        if step == self.lengths.steps or _falls_on(step, self.lengths.save_every):
            self.stop.check()
            self._save()
        self.stop.check()

    def _save(self) -> None:
        self._at("saving")
        step, loss = self.heldout_loss or (None, None)
        loss = loss if step == self.state.step else None
        self.recorder.sync()
        if self.job.recipe.checkpoint.asynchronous:
            self.saver.begin(self.state, loss)
        else:
            self.saved = self.saver.save(self.state, loss)
        self.saved_step = self.state.step

    def _finish_save(self) -> None:
        """Wait for a save beside the training."""
        self._at("finishing a save")
        self.saved = self.job.store.wait() or self.saved

    def _stopped(self, signal_name: str) -> StoppedError:
        """Save the last finished step, unless that is done already, and say how to go on."""
        if self.state.step > self.saved_step:
            self._save()
        self._finish_save()
        where = f"it is saved in {self.saved}" if self.saved else "nothing was trained yet"
        return StoppedError(
            f"stopped by {signal_name} after step {self.state.step} of {self.lengths.steps}; {where}; "
            "run the same command again to go on"
        )

    def _at(self, what: str) -> None:
        """Tell who watches over this rank where it is."""
        self.job.mesh.meter.observer.touch(f"{what}, after step {self.state.step}")


def _falls_on(step: int, every: int | None) -> bool:
    return every is not None and step % every == 0
