"""What is to be started, and the file in which each rank reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kitae.launch.helper import Helper
from kitae.storage.files import replace_file

SAVING = "saving as soon as the work at hand is done"


@dataclass(frozen=True)
class Launch:
    """Ranks that work together, on this machine or on several ones, equally many on each."""

    world_size: int
    """Of all machines."""
    tp_size: int
    """Ranks that share one copy of the model; neighbours."""
    backend: str
    """Name in the table of backends; the ranks of a machine get its devices in turn."""
    timeout_s: float
    """Seconds without progress of any rank after which all are ended."""
    logs: Path
    """Folder of rank-N.log."""
    title: str = "attempt 1"
    """What the logs call this start."""
    on_stop: str = SAVING
    """What is said when a stop signal comes."""
    precision: str = ""
    """Of the recipe, where one is trained: a runtime may have to be told how to round."""
    attempt: Path | None = None
    """Folder that all machines see, for what they have to tell each other; None for one alone."""
    names: tuple[str, ...] = ("this machine",)
    """What the machines are called."""
    addresses: tuple[str, ...] = ("127.0.0.1",)
    """Where they are reached by the others."""
    job: int = 0
    """Number of the job that they belong to; ports follow from it."""
    node: int = 0
    """Number of this one, from 0."""
    meeting: str = ""
    """Where the machines meet, as `address:port`; not needed by one alone."""
    interface: str = ""
    """Network interface that leads there; where empty, the loopback one."""
    helper: Helper | None = None
    """Runs beside the ranks on each of several machines, and is told the machine's name as `node`."""

    @property
    def nodes(self) -> int:
        """Machines."""
        return len(self.names)

    @property
    def name(self) -> str:
        """What this machine is called."""
        return self.names[self.node]

    def name_of(self, rank: int) -> str:
        """What a rank's machine is called."""
        return self.names[rank // self.local_size]

    @property
    def local_size(self) -> int:
        """Ranks of each machine."""
        return self.world_size // self.nodes

    @property
    def local_ranks(self) -> range:
        """Numbers of the ranks of this machine."""
        return range(self.node * self.local_size, (self.node + 1) * self.local_size)

    def log(self, rank: int) -> Path:
        """Where a rank writes."""
        return self.logs / f"rank-{rank}.log"

    def place(self, rank: int) -> str:
        """A rank's place in the mesh, for a person."""
        where = f"{self.name_of(rank)}, " if self.nodes > 1 else ""
        return f"{where}data-parallel rank {rank // self.tp_size}, tensor-parallel rank {rank % self.tp_size}"


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
        """Let the ranks, or the launchers of other machines, read it."""
        replace_file(self.path, json.dumps(asdict(self), default=str).encode())

    @classmethod
    def read(cls, path: Path) -> Order:
        """The order in a file."""
        values = json.loads(path.read_text(encoding="utf-8"))
        launch = values.pop("launch")
        launch["logs"] = Path(launch["logs"])
        launch["attempt"] = launch["attempt"] and Path(launch["attempt"])
        launch["helper"] = launch["helper"] and Helper(**launch["helper"])
        launch |= {name: tuple(launch[name]) for name in ("names", "addresses")}
        return cls(launch=Launch(**launch), **{**values, "folder": Path(values["folder"])})

    def heartbeat(self, rank: int) -> Path:
        """File of a rank's heartbeat."""
        return self.folder / f"rank-{rank}.beat"

    def outcome(self, rank: int) -> Path:
        """File of a rank's outcome."""
        return (self.launch.attempt or self.folder) / f"rank-{rank}.json"
