"""What is to be started, and the file in which each rank reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Launch:
    """Ranks that work together on this machine."""

    world_size: int
    tp_size: int
    """Ranks that share one copy of the model; neighbours."""
    backend: str
    """Name in the table of backends; rank r gets device r."""
    timeout_s: float
    """Seconds without progress of any rank after which all are ended."""
    logs: Path
    """Folder of rank-N.log."""
    title: str = "attempt 1"
    """What the logs call this start."""

    def log(self, rank: int) -> Path:
        """Where a rank writes."""
        return self.logs / f"rank-{rank}.log"

    def place(self, rank: int) -> str:
        """A rank's place in the mesh, for a person."""
        return f"data-parallel rank {rank // self.tp_size}, tensor-parallel rank {rank % self.tp_size}"


@dataclass(frozen=True)
class Order:
    """A launch, and what each of its ranks does."""

    launch: Launch
    entry: str
    """`module:function`, which is called with the mesh and the arguments by name."""
    arguments: Mapping[str, Any]
    """JSON values."""
    parent: int
    """Process that the ranks end with."""
    folder: Path
    """Where heartbeats and outcomes lie."""

    @property
    def path(self) -> Path:
        """The file of this order."""
        return self.folder / "order.json"

    def write(self) -> None:
        """Let the ranks read it."""
        self.path.write_text(json.dumps(asdict(self), default=str), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Order:
        """The order in a file."""
        values = json.loads(path.read_text(encoding="utf-8"))
        launch = values.pop("launch")
        launch["logs"] = Path(launch["logs"])
        return cls(launch=Launch(**launch), **{**values, "folder": Path(values["folder"])})

    def heartbeat(self, rank: int) -> Path:
        """File of a rank's heartbeat."""
        return self.folder / f"rank-{rank}.beat"

    def outcome(self, rank: int) -> Path:
        """File of a rank's outcome."""
        return self.folder / f"rank-{rank}.json"
