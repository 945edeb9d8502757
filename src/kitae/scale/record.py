"""`scale.json`: where it lies, written and read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kitae.stages.files import read_json, write_json

FILE = "scale.json"
FOLDER = "scale"
"""In a run's folder: its measurements, by kind."""


def scale_folder(run: Path, kind: str) -> Path:
    """Of one kind of a run's measurements."""
    return run / FOLDER / kind


def write_scale(folder: Path, content: Mapping[str, Any]) -> None:
    """Keep it."""
    write_json(folder / FILE, content)


def read_scales(run: Path) -> list[dict[str, Any]]:
    """What was measured for a run, strong before weak; broken files are passed over."""
    found = (read_json(path) for path in sorted((run / FOLDER).glob(f"*/{FILE}")))
    return [one for one in found if one.get("kitae_scale")]
