"""The graphs of a training, as its folder's `graphs.json` tells (see `ledger`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kitae.errors import PrecompileError

FILE = "graphs.json"


@dataclass(frozen=True)
class Input:
    """A tensor that goes into a graph."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Graph:
    """One program of a training."""

    phase: str
    """What it is for, such as train/first, update, evaluate, save."""
    key: str
    """Its hash; the same in every process and run. Empty where the backend knows none."""
    inputs: tuple[Input, ...] = ()
    artefact: str = ""
    """What the compiler's cache calls it, where that is not its key."""
    first_step: int | None = None
    uses: int = 0

    @property
    def name(self) -> str:
        """What the compiler's cache calls it."""
        return self.artefact or self.key


def read_graphs(path: Path) -> tuple[Graph, ...]:
    """The graphs of a run's folder, or of the file itself. Raises `PrecompileError`."""
    file = path / FILE if path.is_dir() else path
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
        if value["format"] != 1:
            raise PrecompileError(f"{file}: format {value['format']} is unknown; use the kitae that wrote it")
        return tuple(_graph(one) for one in value["graphs"])
    except FileNotFoundError:
        raise PrecompileError(
            f"{file} is not there: a training writes it on a backend that compiles graphs; name a run of such"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PrecompileError(f"{file} cannot be read ({error}); train again, or name another run") from error


def _graph(value: dict[str, Any]) -> Graph:
    inputs = tuple(
        Input(str(one.get("name", "")), tuple(map(int, one["shape"])), str(one["dtype"]))
        for one in value.get("inputs", ())
    )
    return Graph(
        phase=str(value["phase"]),
        key=str(value.get("key") or ""),
        inputs=inputs,
        artefact=str(value.get("artefact") or ""),
        first_step=value.get("first_step"),
        uses=int(value.get("uses") or 0),
    )
