"""The training: resume, evaluate, update, save, until the last step or a signal.

The order at each step is update, evaluation, checkpoint, and each is written down when it is done. Everything
that the next update depends on is in the checkpoint; data order and learning rate follow from its counters.
So a run that is killed anywhere and started again is, on the same machine, the same to the bit.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kitae.checkpoint.resume import Checkpoint, open_checkpoint
from kitae.errors import StoppedError, TrainingError
from kitae.parallel.mesh import on_lead
from kitae.precompile.ledger import Ledger
from kitae.recipe.resolve import resolve
from kitae.train.batch import GlobalBatch, global_batch
from kitae.train.build import begin_phase, build_objective, build_stepper
from kitae.train.chip_attention import attention_record
from kitae.train.course import Course, Stretch, course_of
from kitae.train.evaluate import evaluate
from kitae.train.finite import NotFiniteError
from kitae.train.job import Phase, TrainJob, TrainResult
from kitae.train.late import state_of
from kitae.train.metrics import MetricsLog
from kitae.train.pace import Pace
from kitae.train.progress import display
from kitae.train.recorder import Recorder, RunRecorder, SilentRecorder, Topology
from kitae.train.results import evaluation_path, finished_result, save_evaluation, write_run_results
from kitae.train.signals import StopRequested, StopSignals
from kitae.train.state import Saver, TrainState, begin_after, check_same_recipe, restore
from kitae.train.step import Stepper, Underway
from kitae.train.tracking.tracking import tracking


def train(job: TrainJob) -> TrainResult:
    """Train, or go on training, to the end of the recipe's duration.

    Raises `StoppedError` after a signal, `TrainingError` when a value is not finite, `RecipeError` when the
    folder's checkpoint is of another training, `StorageError` when the disk is full.
    """
    ledger = job.backend.observer = Ledger(job.backend, job.recipe.target.new_graphs, job.report, _note(job))
    job = replace(job, phases=tuple(_resolved(phase, job.backend.name) for phase in job.phases))
    course = course_of(job)
    checkpoint = _newest(job)
    if checkpoint is not None:
        check_same_recipe(job, checkpoint)
        finished = on_lead(job.mesh, partial(finished_result, job, checkpoint, course))
        if finished is not None:
            return finished
    with StopSignals(job.mesh.control) as stop:
        stretch = course.at(checkpoint.step if checkpoint else 0)
        stepper = build_stepper(job, stretch.phase)
        state = TrainState()
        if checkpoint is not None:
            state = restore(stepper, checkpoint, stretch.first)
            job.report(f"going on from {checkpoint.path} after step {state.step} of {course.steps}")
        elif job.start is not None:
            state = begin_after(stepper, job.start, course.steps)
            job.report(
                f"beginning after step {state.step} of {course.steps}, with the state of {job.start.path}"
            )
        ledger.step = state.step
        ledger.enter(stretch.phase.name)
        job.backend.boundary("resume" if checkpoint else "begin", outputs=state_of(stepper))
        with ExitStack() as stack:
            recorder = _recorder(job, course, state.step, stack)
            saved = checkpoint.path if checkpoint else None
            run = _Run(job, course, stretch, stepper, state, recorder, stop, saved, ledger)
            run.to_the_end()
    results = on_lead(job.mesh, partial(write_run_results, job, course))
    assert run.saved is not None
    resumed_from = checkpoint.step if checkpoint else None
    return TrainResult(state.step, run.saved, results, resumed_from, already_complete=False)


def _resolved(phase: Phase, backend: str) -> Phase:
    return replace(phase, recipe=resolve(phase.recipe, backend=backend).recipe)


def _newest(job: TrainJob) -> Checkpoint | None:
    """Find the checkpoint to go on from; one rank looks and verifies, and all open the same one."""

    def find() -> Path | None:
        job.store.clean()
        found = job.store.latest()
        return None if found is None else found.path

    path = on_lead(job.mesh, find)
    return None if path is None else open_checkpoint(path, verify=False)


def _recorder(job: TrainJob, course: Course, step: int, stack: ExitStack) -> Recorder:
    """Open metrics, trackers and display, which `stack` closes again; only one rank writes."""
    if not job.mesh.leads:
        return SilentRecorder()
    log = stack.enter_context(MetricsLog(job.folder / "metrics.jsonl", step))
    stack.enter_context(tracking(job.recipe, job.folder, step, job.report))
    return RunRecorder(
        log=log,
        display=stack.enter_context(display(job.report)),
        report=job.report,
        backend=job.backend,
        precision=job.recipe.training.precision,
        flops_per_token=_flops_per_token(job, course.at(step)),
        steps=course.steps,
        devices=job.mesh.control.size,
        topology=_topology(job),
    )


def _flops_per_token(job: TrainJob, stretch: Stretch) -> int:
    objective = build_objective(job.model, stretch.phase.recipe)
    return objective.flops_per_token(stretch.phase.train)


def _topology(job: TrainJob) -> Topology:
    parallel = job.recipe.parallel
    assert parallel.zero1 != "auto", "the recipe is resolved"
    return {
        "data_parallel_size": job.mesh.data.size,
        "tensor_parallel_size": job.mesh.tensor.size,
        "sequence_parallel": parallel.sequence_parallel,
        "zero1": parallel.zero1,
        **attention_record(job.model, job.backend, job.recipe),
    }


@dataclass(frozen=True)
class _Untold:
    """An update that was begun, of which nothing has been recorded yet."""

    underway: Underway
    state: TrainState
    """After it."""
    learning_rate: float
    batch: GlobalBatch[Any]
    begin: float
    waited_s: float
    """For other ranks, before it."""


@dataclass
class _Run:
    """One attempt."""

    job: TrainJob
    course: Course
    stretch: Stretch
    """The phase that is trained."""
    stepper: Stepper
    state: TrainState
    recorder: Recorder
    stop: StopSignals
    saved: Path | None
    """The newest checkpoint."""
    ledger: Ledger
    """Of the graphs."""
    saver: Saver = field(init=False)
    pace: Pace = field(init=False)
    saved_step: int = field(init=False)
    heldout_loss: tuple[int, float] | None = field(init=False, default=None)
    """The last one measured, and after which step."""
    untold: deque[_Untold] = field(init=False, default_factory=deque)
    """At most one update behind on a machine whose results are read late, else none."""
    told: float = field(init=False, default=0.0)
    """When the last update was known to be done."""

    def __post_init__(self) -> None:
        self.saver = Saver(self.job, self.stepper)
        self.pace = Pace(self.job.mesh, self.job.report, self.recorder.note)
        self.saved_step = self.state.step

    def to_the_end(self) -> None:
        """Train until the last step is done, evaluated and saved. Raises `StoppedError` after a signal."""
        self.recorder.start(self.state.step)
        stopped = None
        try:
            stopped = self._all_stretches()
        except TrainingError as error:  # all ranks have it, and what is being saved is of an earlier step
            self.job.store.wait()
            if isinstance(error, NotFiniteError):
                self.recorder.note({"kind": "not-finite", "step": self.state.step, "what": str(error)})
            raise
        if stopped is not None:
            raise self._stopped(stopped)
        self._finish_save()
        self._write_graphs(last=True)

    def _all_stretches(self) -> str | None:
        """Train until the last step is done; the name of a signal that came before."""
        try:
            for stretch in self.course.stretches[self.stretch.index :]:
                self._enter(stretch)
                self._train()
        except StopRequested as request:
            self._tell()
            return str(request)
        return None

    def _enter(self, stretch: Stretch) -> None:
        """Begin a phase, or go on in it."""
        self.stretch = stretch
        self.ledger.enter(stretch.phase.name)
        if stretch.index and self.state.step == stretch.first:
            self.stepper = begin_phase(self.stepper, stretch.phase, stretch.first)
            self.state.consumed_samples = 0
            self.job.report(f"phase {stretch.phase.name}: steps {stretch.first + 1} to {stretch.last}")
        self.recorder.enter(stretch.phase.name, _flops_per_token(self.job, stretch))

    def _train(self) -> None:
        self._evaluate_when_due()
        while self.state.step < self.stretch.last:
            self._update()
            self._evaluate_when_due()
            self._save_when_due()

    def _update(self) -> None:
        self._at("an update")
        begin, waited = time.perf_counter(), self.job.mesh.meter.waited_s
        state, stretch, mesh = self.state, self.stretch, self.job.mesh
        number = state.step - stretch.first
        samples = stretch.cursor.reads(state.consumed_samples, stretch.lengths.rows_of(number))
        size, device = stretch.lengths.micro_batch_size, self.job.backend.device
        tensors = self.stepper.objective.tensors
        least = stretch.lengths.accumulation_steps if self.job.backend.static else 0
        batch = global_batch(stretch.phase.train, samples, size, device, mesh, tensors, least)
        rate = stretch.schedule.rate(number)
        underway = self.stepper.begin(batch, rate, step=state.step + 1, check=self.stop.check)
        state.step += 1
        self.ledger.step = state.step
        state.consumed_samples += len(samples)
        state.padded_tokens += batch.padded_tokens
        state.real_tokens += batch.real_tokens
        self.untold.append(_Untold(underway, replace(state), rate, batch, begin, waited))
        late = self.job.backend.lazy
        if not (late and self._waited_for()):
            self._tell(all_but=int(late))

    def _waited_for(self) -> bool:
        """Whether an evaluation or a save comes now, which waits for all that was begun."""
        evaluated = self.stretch.phase.heldout is not None and self._evaluation_due()
        return evaluated or self._save_due()

    def _tell(self, all_but: int = 0) -> None:
        """Wait for updates that were begun, but for the last ones, and record them.

        Of several it is only known when all are done: waiting for one may be waiting for the next one, too.
        """
        told = [self.untold.popleft() for _ in range(len(self.untold) - all_but)]
        if not told:
            return
        updates = [one.underway.result() for one in told]
        now = time.perf_counter()
        seconds, self.told = (now - max(told[0].begin, self.told)) / len(told), now
        for one, update in zip(told, updates, strict=True):
            self.pace.note(one.state.step, seconds - (self.job.mesh.meter.waited_s - one.waited_s))
            memory = self._peak_memory_bytes()
            self.recorder.update(one.state, update, one.learning_rate, one.batch, seconds, memory)
        self._write_graphs()

    def _peak_memory_bytes(self) -> int:
        own = torch.tensor([self.job.backend.memory_bytes()])
        return int(self.job.mesh.control.all_reduce(own, "max").item())

    def _evaluate_when_due(self) -> None:
        step, heldout = self.state.step, self.stretch.phase.heldout
        if heldout is None or not self._evaluation_due():
            return
        self._tell()
        if on_lead(self.job.mesh, lambda: self.recorder.has_evaluation(step)):
            return
        self._at("held-out evaluation")
        begin = time.perf_counter()
        evaluation = evaluate(
            self.stepper.objective,
            heldout,
            micro_batch_size=self.stretch.lengths.eval_micro_batch_size,
            max_rows=self.stretch.phase.recipe.evaluation.max_rows,
            backend=self.job.backend,
            check=self.stop.check,
            mesh=self.job.mesh,
        )
        if self.job.mesh.leads:
            save_evaluation(evaluation_path(self.job, step, self.stretch.phase), evaluation)
        self.recorder.evaluate(step, evaluation, time.perf_counter() - begin)
        best = self.state.best_heldout_loss
        self.state.best_heldout_loss = evaluation.loss if best is None else min(best, evaluation.loss)
        self.heldout_loss = step, evaluation.loss

    def _evaluation_due(self) -> bool:
        """Before a phase's first step and after its last, as often as asked for, and to find the best."""
        step, stretch = self.state.step, self.stretch
        at_ends = step in (stretch.first, stretch.last)
        return at_ends or _falls_on(step, stretch.lengths.eval_every) or self._best_wanted()

    def _best_wanted(self) -> bool:
        every = self.stretch.lengths.save_every
        return self.job.recipe.checkpoint.keep_best and _falls_on(self.state.step, every)

    def _save_when_due(self) -> None:
        self.saved = self.job.store.check() or self.saved
        if self._save_due():
            self.stop.check()
            self._save()
        self.stop.check()

    def _save_due(self) -> bool:
        step = self.state.step
        return step == self.stretch.last or _falls_on(step, self.stretch.lengths.save_every)

    def _save(self) -> None:
        self._at("saving")
        self._tell()
        step, loss = self.heldout_loss or (None, None)
        loss = loss if step == self.state.step else None
        self.recorder.sync()
        if self.job.recipe.checkpoint.asynchronous:
            self.saver.begin(self.state, loss)
        else:
            self.saved = self.saver.save(self.state, loss)
        self.saved_step = self.state.step

    def _write_graphs(self, *, last: bool = False) -> None:
        if self.job.mesh.leads:
            self.ledger.write(self.job.folder, last=last)

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
            f"stopped by {signal_name} after step {self.state.step} of {self.course.steps}; {where}; "
            "run the same command again to go on"
        )

    def _at(self, what: str) -> None:
        """Tell who watches over this rank where it is."""
        self.job.mesh.meter.observer.touch(f"{what}, after step {self.state.step}")


def _note(job: TrainJob) -> Callable[[str], None]:
    """Where the name of each graph goes: to the output, for who collects graphs for a compiler."""
    return partial(print, flush=True) if job.backend.pretends else lambda line: None


def _falls_on(step: int, every: int | None) -> bool:
    return every is not None and step % every == 0
