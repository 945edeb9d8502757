"""What a check finds: the rule's name, the place, what is wrong, and the way out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from kitae.cluster.schema import ClusterFile
from kitae.recipe.yaml_positions import KeyPath

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing that a rule says of a cluster file."""

    rule: str
    level: Level
    where: KeyPath
    message: str


@dataclass(frozen=True)
class Said:
    """What a rule says, before it is given the rule's name."""

    where: KeyPath
    message: str
    level: Level = "error"


@dataclass(frozen=True)
class Case:
    """What rules look at."""

    file: ClusterFile
    now: datetime


Rule = Callable[[Case], Iterable[Said]]
