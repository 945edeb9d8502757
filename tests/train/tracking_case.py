"""A run's folder with a metrics file, and a tracker that keeps what it is given."""

from __future__ import annotations

import json
from pathlib import Path

from kitae.recipe.tracking import TrackingConfig
from kitae.train.tracking.interface import Kind, Outcome, Point, TrackedRun


def start(step: int = 0) -> dict[str, object]:
    return {"kind": "start", "step": step, "steps": 10}


def update(step: int) -> dict[str, object]:
    return {"kind": "train", "step": step, "loss": 3.0 - step / 10, "rows": 4, "learning_rate": 0.1}


def evaluation(step: int, **values: object) -> dict[str, object]:
    return {
        "kind": "evaluation",
        "step": step,
        "loss": 2.0 - step / 10,
        "seconds": 0.5,
        "tokens": 9,
        **values,
    }


def append(run: TrackedRun, *records: dict[str, object]) -> None:
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in records)


def tracked(folder: Path, resumed_step: int = 0, **config: object) -> TrackedRun:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").touch()
    recipe = {"seed": 7, "optimizer": {"name": "adamw", "betas": [0.9, 0.95]}, "phases": []}
    return TrackedRun(folder, "tiny", TrackingConfig.model_validate(config), recipe, resumed_step)


class KeepingTracker:
    """Made for a test; `failures` are how often what does not work yet."""

    def __init__(self) -> None:
        self.points: list[tuple[int, dict[str, float]]] = []
        self.opened: list[str | None] = []
        self.outcomes: list[Outcome] = []
        self.failures = {"open": 0, "send": 0, "close": 0}
        self.id, self.shown = "one", "http://user:password@here/one"

    def kind(self, *, hides: bool = False) -> Kind:
        return Kind(self.open, (), lambda run: f"http://user:password@here/{run.config.project}", hides)

    def open(self, run: TrackedRun, known: str | None) -> KeepingTracker:
        self.opened.append(known)
        self._may_fail("open")
        return self

    def send(self, points: list[Point]) -> None:
        self._may_fail("send")
        self.points += [(one.step, dict(one.values)) for one in points]

    def close(self, outcome: Outcome) -> None:
        self._may_fail("close")
        self.outcomes.append(outcome)

    def _may_fail(self, what: str) -> None:
        if self.failures[what]:
            self.failures[what] -= 1
            raise OSError(f"{what}: no network to http://user:password@here?token=abc")

    @property
    def steps(self) -> list[int]:
        return [step for step, _ in self.points]
