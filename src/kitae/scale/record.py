"""`scale.json`: where it lies, written and read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kitae.stages.files import read_json, write_json

FILE = "scale.json"
FOLDER = "scale"
"""In a run's folder: its measurements, by kind."""
ASIDE = "old"
"""The folder below it that measurements are set aside into."""


def scale_folder(run: Path, *what: str | None) -> Path:
    """Of one kind of a run's measurements, such as strong ones with workers."""
    return run / FOLDER / "-".join(one for one in what if one is not None)


def write_scale(folder: Path, content: Mapping[str, Any]) -> None:
    """Keep it."""
    write_json(folder / FILE, content)


def read_scales(run: Path) -> list[dict[str, Any]]:
    """What was measured for a run, strong before weak; broken files are passed over."""
    paths = sorted((run / FOLDER).glob(f"*/{FILE}"))
    found = (read_json(path) for path in paths)
    return [one for one in found if one.get("kitae_scale")]
