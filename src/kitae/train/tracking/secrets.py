"""Takes passwords and tokens out of texts that are shown or kept."""

from __future__ import annotations

import os
import re

_USER = re.compile(r"(?<=://)[^/@\s]+@")
_PARAMETER = re.compile(r"([?&][^=&\s]*(?:token|key|secret|password)[^=&\s]*=)[^&\s'\"]+", re.IGNORECASE)
_VARIABLES = (
    *("WANDB_API_KEY", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"),
    *("TRACKIO_WRITE_TOKEN", "HF_TOKEN"),
)
_SHORTEST = 6
"""Shorter values would be found in ordinary words."""


def without_secrets(text: str) -> str:
    """A text without logins in its addresses and without what the trackers' variables hold."""
    text = _PARAMETER.sub(r"\1***", _USER.sub("***@", text))
    for name in _VARIABLES:
        value = os.environ.get(name, "")
        if len(value) >= _SHORTEST:
            text = text.replace(value, "***")
    return text
