"""All pieces of a precision on this process' threads, and the constants that follow from them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import fmean, median

import torch

from kitae.calibrate.clock import OutOfTimeError, Timing, timed, together
from kitae.calibrate.pieces import Piece
from kitae.calibrate.shapes import PRODUCTS, Group, groups, joint, models
from kitae.parallel.mesh import Mesh
from kitae.plan.calibration import ProductSpeed, Speeds
from kitae.plan.fitting import Sample, fit, seconds_of
from kitae.plan.parts import Counts

PIECE_S = 0.05
"""How long a piece is tried again, at the least."""
Say = Callable[[str], None]
"""Is told what is measured next."""


@dataclass
class Sweep:
    """Measures one precision."""

    precision: str
    say: Say
    until: float
    """When it is given up, in seconds of the wall clock."""
    constants: dict[str, float] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)
    products: list[ProductSpeed] = field(default_factory=list)

    def run(self, mesh: Mesh) -> Speeds:
        """Measure and fit, group by group."""
        # Under autocast only what surrounds the products differs from bf16.
        for name, make in (models if self.constants else groups)(self.precision):
            self.say(f"{self.precision}, {torch.get_num_threads()} threads: {name}")
            samples = [(counts, self._time(run)) for counts, run in self._in_time(make())]
            self._fit(samples)
            if name == "products":
                self._note_products()
        for name, make in joint(self.precision, mesh) if mesh.control.size > 1 else ():
            self.say(f"{self.precision}, {mesh.control.size} processes: {name}")
            self._fit([(counts, together(run).best) for counts, run in make()])
        errors = [abs(seconds_of(counts, self.constants) / seconds - 1) for counts, seconds in self.samples]
        return Speeds(
            precision=self.precision,
            threads=torch.get_num_threads(),
            processes=mesh.control.size,
            constants=dict(self.constants),
            misfit=fmean(errors),
            spread=median(one.spread for one in self.timings),
        )

    def _in_time(self, group: Group) -> Iterator[Piece]:
        for piece in group:
            if time.perf_counter() > self.until:
                raise OutOfTimeError
            yield piece

    def _fit(self, samples: Sequence[tuple[Counts, float]]) -> None:
        self.constants |= fit(samples, self.constants)
        self.samples += samples

    def _time(self, run: Callable[[], object]) -> float:
        timing = timed(run, budget_s=PIECE_S)
        self.timings.append(timing)
        return timing.best

    def _note_products(self) -> None:
        for shape, timing in zip(PRODUCTS, self.timings, strict=True):
            tokens, inputs, outputs = shape
            flops = 6 * tokens * inputs * outputs / timing.best
            threads = torch.get_num_threads()
            self.products.append(ProductSpeed(self.precision, threads, *shape, flops, timing.spread))


BEFORE = ("product.", "causal.", "long.", "whole.", "dropped.", "vocabulary.", "embedding.")
"""Constants that autocast shares with bf16."""


def sweeps(
    mesh: Mesh, say: Say, precisions: Sequence[str], until: float = inf
) -> tuple[list[Speeds], list[ProductSpeed]]:
    """Some precisions, on this process' threads, and what it pays for being one of several; autocast last.

    Those that are not done by `until` are left out.
    """
    found, products = [], []
    known: dict[str, dict[str, float]] = {}
    for precision in precisions:
        shared = known.get("bf16", {}) if precision == "autocast" else {}
        sweep = Sweep(precision, say, until)
        sweep.constants = {name: value for name, value in shared.items() if name.startswith(BEFORE)}
        try:
            speeds = sweep.run(mesh)
        except OutOfTimeError:
            break
        known[precision] = dict(speeds.constants)
        found.append(speeds)
        products += sweep.products
    return found, products
