"""Tokens of the Hub and of trackers.

From this process' environment they go over ssh's standard input to jobs, and nowhere else.

They lie there in a file that only the user can read; each job's script reads it, and it goes with the last
job.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence

NAMES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
OF_TRACKERS: Mapping[str, tuple[str, ...]] = {
    "wandb": ("WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_MODE"),
    "mlflow": (
        *("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"),
        "MLFLOW_TRACKING_TOKEN",
    ),
    "trackio": ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_WRITE_TOKEN"),
}
"""What else goes there when a recipe names a tracker: its login, and where it is."""


def tokens_text(trackers: Sequence[str] = (), environment: Mapping[str, str] = os.environ) -> str:
    """Lines that a shell reads; empty without tokens."""
    names = (*NAMES, *(name for tracker in trackers for name in OF_TRACKERS.get(tracker, ())))
    found = {name: environment[name] for name in names if environment.get(name)}
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in found.items())


def setup_line(path: str) -> str:
    """The line of a job's script that reads them, where they are."""
    return f"if [ -r {shlex.quote(path)} ]; then . {shlex.quote(path)}; fi"
