"""MLflow: a run of an experiment, on a server or in a database of SQLite."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from kitae.train.tracking.interface import Outcome, Point, TrackedRun

STATUS: Mapping[Outcome, str] = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
_MOST_PARAMETERS, _LONGEST_VALUE = 100, 500
"""At once, and of each: what every server takes."""


def uri_of(run: TrackedRun) -> str:
    """Where the experiment is."""
    default = f"sqlite:///{run.folder.parent / 'mlflow.db'}"
    return run.config.mlflow.uri or os.environ.get("MLFLOW_TRACKING_URI") or default


class MlflowRun:
    """Each call is one request that is taken as a whole."""

    def __init__(self, run: TrackedRun, known: str | None) -> None:
        self._entities = import_module("mlflow.entities")
        for name in ("mlflow", "alembic"):  # they tell of each table that they make
            logging.getLogger(name).setLevel(logging.WARNING)
        self._client: Any = import_module("mlflow.tracking").MlflowClient(tracking_uri=uri_of(run))
        self.id = known or self._begin(run)
        if known is not None:
            self._client.update_run(known, status="RUNNING")
        self.shown = f"run {self.id} of experiment {run.config.project} at {uri_of(run)}"

    def _begin(self, run: TrackedRun) -> str:
        experiment = self._client.get_experiment_by_name(run.config.project)
        number = (
            experiment.experiment_id if experiment else self._client.create_experiment(run.config.project)
        )
        tags = {f"kitae.tag.{tag}": "true" for tag in run.config.tags}
        begun: str = self._client.create_run(number, tags=tags, run_name=run.name).info.run_id
        values = [(name, str(value)[:_LONGEST_VALUE]) for name, value in flat(run.recipe)]
        for first in range(0, len(values), _MOST_PARAMETERS):
            part = values[first : first + _MOST_PARAMETERS]
            self._client.log_batch(begun, params=[self._entities.Param(*one) for one in part])
        return begun

    def send(self, points: Sequence[Point]) -> None:
        """Send the points."""
        metric = self._entities.Metric
        self._client.log_batch(
            self.id,
            metrics=[
                metric(name, value, round(1000 * point.time), point.step)
                for point in points
                for name, value in point.values.items()
            ],
        )

    def close(self, outcome: Outcome) -> None:
        """Say how it ended."""
        self._client.set_terminated(self.id, STATUS[outcome])


def flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """A nested mapping as dotted names with values; without what is null or empty."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{above}{name}.")
        elif value not in (None, [], ""):
            yield f"{above}{name}", value
