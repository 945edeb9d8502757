"""A checkpoint in the making: the rank that leads gathers the parts of all ranks and publishes them."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kitae.checkpoint.manifest import Manifest
from kitae.checkpoint.parts import Part, announce, announced, collect
from kitae.checkpoint.run_index import RunIndex
from kitae.errors import StorageError

_POLL_S = 0.05


class Draft(Protocol):
    """One rank's view of a checkpoint in the making."""

    @property
    def temporary(self) -> Path:
        """The folder that all ranks write into."""
        ...

    def add(self, part: Part) -> None:
        """Take this rank's part, which is complete."""
        ...

    def publish(self, given_up: threading.Event) -> None:
        """Wait for the other parts and make a checkpoint of all; StorageError when given up before."""
        ...

    def discard(self) -> None:
        """Remove what was written and let others save."""
        ...


@dataclass
class Leading:
    """The rank that publishes: it holds the store's lock from the beginning to the end."""

    temporary: Path
    final: Path
    manifest: Manifest
    """Without tensors and files."""
    index: RunIndex
    """As it was when the save began."""
    peers: Sequence[int]
    lock: ExitStack
    finish: Callable[[Leading, list[Part]], None]
    """Publishes what the parts make."""
    parts: list[Part] = field(default_factory=list)

    def add(self, part: Part) -> None:
        """Keep this rank's part."""
        self.parts.append(part)

    def publish(self, given_up: threading.Event) -> None:
        """Wait until the peers have announced their parts in the folder; then finish, and unlock."""
        while not announced(self.temporary, self.peers):
            if given_up.wait(_POLL_S):
                raise StorageError(f"the save of {self.final} was given up: a part of it failed")
        self.finish(self, [*self.parts, *collect(self.temporary, self.peers)])
        self.lock.close()

    def discard(self) -> None:
        """Remove the folder and unlock."""
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.lock.close()


@dataclass
class Following:
    """Any other rank: it announces its part in the folder."""

    temporary: Path
    rank: int

    def add(self, part: Part) -> None:
        """Tell the leading rank, by a file in the folder."""
        announce(self.temporary, self.rank, part)

    def publish(self, given_up: threading.Event) -> None:
        """Nothing: the leading rank does it."""

    def discard(self) -> None:
        """Nothing: the leading rank removes the folder."""
