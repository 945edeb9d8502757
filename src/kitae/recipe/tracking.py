"""Where the numbers of a training are shown besides its metrics file."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from kitae.recipe.base import FieldError, NonEmpty, Section

TrackerName = Literal["tensorboard", "wandb", "mlflow", "trackio"]

_SECRET = re.compile(r"://[^/\s]*@|[?&][^=&\s]*(?:token|key|secret|password)[^=&\s]*=", re.IGNORECASE)


class WandbConfig(Section):
    """Weights & Biases. Its login comes from `wandb login` or WANDB_API_KEY, never from here."""

    mode: Literal["auto", "online", "offline"] = "auto"
    """auto: as WANDB_MODE says, else online, and offline where there is no login or no answer. `wandb sync`
    sends later what was written offline into the run's folder `wandb/`."""
    entity: NonEmpty | None = None
    """User or team; null: the default of the login."""


class MlflowConfig(Section):
    """MLflow. Its login comes from MLFLOW_TRACKING_USERNAME and the like, never from here."""

    uri: NonEmpty | None = None
    """Tracking server or database; null: MLFLOW_TRACKING_URI, else `mlflow.db` in the folder of the runs."""


class TrackioConfig(Section):
    """trackio. Its login comes from HF_TOKEN or TRACKIO_WRITE_TOKEN, never from here."""

    space: NonEmpty | None = None
    """A Space of the Hugging Face hub to send to; null: TRACKIO_SPACE_ID, else this machine alone."""
    server: NonEmpty | None = None
    """Address of a trackio server to send to; null: TRACKIO_SERVER_URL, else none."""


class TrackingConfig(Section):
    """Trackers, which follow metrics.jsonl; none stops a training. Each needs the extra of its name."""

    trackers: Annotated[list[TrackerName], Field(max_length=4)] = Field(default=[])
    """Which: tensorboard (event files in the run's folder), wandb, mlflow, trackio."""
    project: NonEmpty = "kitae"
    """Project of W&B and trackio, experiment of MLflow."""
    tags: list[NonEmpty] = Field(default=[])
    """Of the tracked run, where a tracker has such."""
    wandb: WandbConfig = WandbConfig()
    """For the tracker wandb."""
    mlflow: MlflowConfig = MlflowConfig()
    """For the tracker mlflow."""
    trackio: TrackioConfig = TrackioConfig()
    """For the tracker trackio."""

    @model_validator(mode="after")
    def _check(self) -> TrackingConfig:
        names = self.trackers
        if len(set(names)) < len(names):
            raise FieldError("trackers", f"{', '.join(names)} names one of them twice; take it out once")
        for field, text in (("mlflow.uri", self.mlflow.uri), ("trackio.server", self.trackio.server)):
            if text is not None and _SECRET.search(text):
                raise FieldError(
                    field,
                    "holds a password or token, which a recipe would carry into every run's folder; give it "
                    "in the environment (MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, "
                    "TRACKIO_WRITE_TOKEN)",
                )
        if self.trackio.space and self.trackio.server:
            raise FieldError("trackio.server", "there is trackio.space as well; take one of them out")
        return self
