"""A run as its folder has it, read once; what is damaged leaves a gap, and a line that says so."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from kitae.errors import KitaeError
from kitae.watch.facts import RunFacts, life_of
from kitae.watch.look import look
from kitae.watch.outlook import budget_of
from kitae.watch.reading import Readings
from kitae.watch.state import Jobs
from kitae.watch.status import Status, status_of
from kitae.watch.tail import Record

BROKEN = (KitaeError, OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError)
"""What reading and telling may raise where files are damaged, or of another version."""
_MOST_BYTES = 1 << 25
"""Of a file that is read whole; those of a run are far smaller."""


class RunView:
    """What one run tells."""

    def __init__(self, path: Path, name: str = "", jobs: Jobs | None = None, runs: int = 1) -> None:
        """Read a run; with `jobs` Slurm is not asked, and these are all that it still knows."""
        self.path = path
        self.runs = runs
        """How many the report is on, which share its bounds."""
        self.name = name or path.name
        """What it is called in the report."""
        self._jobs = jobs
        self.gaps: list[str] = []
        """What could not be read, and why."""
        self.now = time.time()
        self.state = self.read("run.json")
        self.plan = self.read("plan.json")
        self.results = self.read("results.json")
        self.proof = self.read("proof.json")
        self.samples = self.read("samples.json")
        self.accuracy = self.read("accuracy.json")
        self.readings = Readings(path)
        self.readings.refresh()
        self._tell_broken_lines("metrics.jsonl")
        self.status = self._status()

    def read(self, name: str) -> dict[str, Any]:
        """The object in a JSON file of the run; empty where there is none, or none that can be read."""
        path = self.path / name
        try:
            if path.stat().st_size > _MOST_BYTES:
                raise ValueError("it is far larger than any that kitae writes")
            value = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError, RecursionError) as error:
            self.gaps.append(f"{name} is damaged and left out: {error}")
            return {}
        if not isinstance(value, dict):
            self.gaps.append(f"{name} is damaged and left out: it holds no object")
            return {}
        return value

    def records(self, name: str) -> list[Record]:
        """The objects of a file of JSON lines."""
        return [record for line in self._lines(name) if isinstance(record := _parsed(line), dict)]

    def text(self, name: str) -> str:
        """A text file of the run; empty where there is none."""
        try:
            with (self.path / name).open(encoding="utf-8", errors="replace") as file:
                return file.read(_MOST_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except OSError as error:
            self.gaps.append(f"{name} cannot be read: {error.strerror}")
            return ""

    def _lines(self, name: str) -> Iterator[bytes]:
        try:
            with (self.path / name).open("rb") as file:
                yield from file
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self.gaps.append(f"{name} cannot be read: {error.strerror}")

    def _tell_broken_lines(self, name: str) -> None:
        """Of a file of JSON lines; the last one may be half-written, which is no damage."""
        broken = sum(
            not (line.startswith(b"{") and line.endswith(b"}\n"))
            for line in self._lines(name)
            if line[-1:] == b"\n"
        )
        if broken:
            self.gaps.append(f"{name}: {broken:,} lines are damaged and left out")

    def _status(self) -> Status:
        try:
            if self._jobs is None:
                return look(self.path)
            return status_of(RunFacts.read(self.path), self._jobs, life_of, self.now)
        except BROKEN as error:
            self.gaps.append(f"what state it is in cannot be told: {type(error).__name__}: {error}")
            return Status(RunFacts(self.path, (), (), progress=_no_progress(), last_sign=None), "stopped")

    @property
    def attempts(self) -> tuple[Record, ...]:
        """Those of `run.json`."""
        return tuple(dict(one) for one in self.status.facts.attempts)

    @property
    def stages(self) -> dict[str, Any]:
        """Stages that are done, with what they recorded."""
        found = self.state.get("stages")
        return found if isinstance(found, dict) else {}

    @cached_property
    def recipe_text(self) -> str:
        """The recipe as it was resolved; before that, as it was submitted."""
        return self.text("recipe.yaml") or self.text("submitted.yaml")

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """Its values."""
        import yaml

        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            value = yaml.load(self.recipe_text, loader) if self.recipe_text else {}
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            self.gaps.append(f"recipe.yaml is damaged and left out: {str(error).splitlines()[0]}")
            return {}
        return value if isinstance(value, dict) else {}

    @cached_property
    def start(self) -> Record:
        """The newest start of the training in the metrics; empty where there is none."""
        return self.readings.starts[-1] if self.readings.starts else {}

    @cached_property
    def heldout(self) -> dict[str, Any]:
        """What the results say of the held-out text; before there are any, what the evaluations do."""
        found = self.results.get("heldout")
        if isinstance(found, dict):
            return found
        evaluations = self.readings.evaluations
        if self.results or len({one.get("phase") for one in evaluations}) != 1 or len(evaluations) < 2:
            return {}
        first, last = evaluations[0], evaluations[-1]
        shared = [name for name in first if name in last and name not in _OF_EVALUATION]
        return {
            **{f"{name}_before": first[name] for name in shared},
            **{f"{name}_after": last[name] for name in shared},
            "at_step": last["step"],
        }

    @property
    def unit(self) -> str:
        """What a held-out loss counts."""
        return "nats/text" if self.recipe.get("objective") == "classification" else "nats/token"

    @cached_property
    def budget_usd(self) -> float | None:
        """That the recipe allows."""
        return budget_of(self.path)

    @cached_property
    def machine_seconds(self) -> float | None:
        """Of all attempts together, from the beginning of each to its end; None where there is none."""
        from kitae.watch.cost import seconds_of_attempt

        found = [
            seconds_of_attempt(self.status.facts, one, self.status.state, self.now)
            for one in self.status.facts.attempts
        ]
        return sum(found) if found else None


_OF_EVALUATION = ("kind", "step", "phase", "seconds", "index", "time", "tokens", "rows", "texts")
"""What an evaluation has beside its metrics."""


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _no_progress() -> Any:
    from kitae.watch.facts import Progress

    return Progress()
