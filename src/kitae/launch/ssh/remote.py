"""What a run's folder here keeps of the run there: `remote.json`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kitae.errors import RecipeError
from kitae.stages.files import read_json, write_json

_FILE = "remote.json"


@dataclass(frozen=True)
class Remote:
    """Where a run is."""

    host: str
    folder: str
    """On the head node, absolute."""
    name: str
    head_python: str
    """What answers there."""
    python: str
    """Of the environment."""
    pythonpath: str = ""
    shell: dict[str, str] = field(default_factory=dict)
    """Variables of a login shell there."""

    rsync: bool = False
    """Whether it is there."""

    @property
    def run(self) -> str:
        """The run's folder there."""
        return f"{self.folder}/runs/{self.name}"

    @property
    def variables(self) -> dict[str, str]:
        """What kitae needs to be told there; what a login shell puts into PYTHONPATH is left out."""
        return {"KITAE_CACHE": f"{self.folder}/cache", "PYTHONPATH": self.pythonpath}


def is_remote(run: Path) -> bool:
    """Whether a folder stands for a run on a head node."""
    return (run / _FILE).is_file()


def read_remote(run: Path) -> Remote:
    """Where it is. Raises `RecipeError` when it is not elsewhere."""
    values: dict[str, Any] = read_json(run / _FILE)
    try:
        return Remote(**values)
    except TypeError:
        raise RecipeError(f"{run} is no run on a head node: there is no usable {_FILE} in it") from None


def write_remote(run: Path, remote: Remote) -> None:
    """Keep it."""
    write_json(run / _FILE, asdict(remote))
