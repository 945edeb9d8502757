"""Scalars for TensorBoard, beside metrics.jsonl; an extra that need not be there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from kitae.errors import RecipeError
from kitae.train.metrics import Record

_SCALARS = (
    "loss",
    "learning_rate",
    "grad_norm",
    "tokens_per_s",
    "utilisation",
    "peak_memory_bytes",
    "perplexity",
)


class Scalars(Protocol):
    """Takes metrics records."""

    def add(self, record: Record) -> None:
        """Show what of the record is a scalar."""
        ...

    def close(self) -> None:
        """Write what is still held."""
        ...


class NoScalars:
    """TensorBoard is off."""

    def add(self, record: Record) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class TensorBoardScalars:
    """Event files in `folder`; what an earlier attempt wrote for steps after `resumed_step` is hidden."""

    def __init__(self, folder: Path, resumed_step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise RecipeError(
                "tensorboard.enabled: TensorBoard is not installed; pip install 'kitae[tensorboard]', "
                "or set it to false"
            ) from error
        self._writer: Any = SummaryWriter(str(folder), purge_step=resumed_step + 1)

    def add(self, record: Record) -> None:
        """Write the record's scalars under its kind."""
        for name in _SCALARS:
            if name in record:
                self._writer.add_scalar(f"{record['kind']}/{name}", record[name], record["step"])

    def close(self) -> None:
        """Write the file out."""
        self._writer.close()


def scalars(folder: Path, *, enabled: bool, resumed_step: int) -> Scalars:
    """Open the event files, or nothing when not `enabled`. Raises `RecipeError` when the extra is missing."""
    return TensorBoardScalars(folder, resumed_step) if enabled else NoScalars()
