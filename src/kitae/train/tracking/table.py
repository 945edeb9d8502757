"""The trackers that there are, and whether those that a recipe names can be had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec

from kitae.errors import RecipeError
from kitae.recipe.tracking import TrackerName
from kitae.train.tracking import event_files, to_mlflow, to_trackio, to_wandb
from kitae.train.tracking.interface import Kind

TRACKERS: Mapping[TrackerName, Kind] = {
    "tensorboard": Kind(
        event_files.EventFiles, ("tensorboard",), lambda run: event_files.folder_of(run).name, hides=True
    ),
    "wandb": Kind(to_wandb.WandbRun, ("wandb",), to_wandb.place_of),
    "mlflow": Kind(
        to_mlflow.MlflowRun,
        ("mlflow", "sqlalchemy", "alembic"),
        lambda run: f"{to_mlflow.uri_of(run)} {run.config.project}",
    ),
    "trackio": Kind(to_trackio.TrackioRun, ("trackio",), to_trackio.place_of),
}
"""By name in the recipe, which is that of the extra, too."""


def check_trackers(names: Iterable[TrackerName]) -> None:
    """Raise `RecipeError` where a package of one is missing; nothing is imported."""
    for name in names:
        missing = [package for package in TRACKERS[name].packages if find_spec(package) is None]
        if missing:
            raise RecipeError(
                f"tracking.trackers: {name} needs {', '.join(missing)}, which is not installed; "
                f"pip install 'kitae[{name}]', or take it out"
            )
