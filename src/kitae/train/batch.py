"""A global batch: the rows of one update, cut into micro-batches of one static shape. B rows, S positions.

With several copies of the model, neighbouring runs of B rows go to the copies in turn. Each makes the same
number of micro-batches, the last ones of padding where rows run out, so that nobody waits for a collective
that does not come.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch

from kitae.data.examples import Examples, Sample
from kitae.data.rows import IntArray, Rows
from kitae.parallel.mesh import Mesh, sum_over_copies


class AnyRows(Protocol):
    """Rows as arrays of a data set, whatever they hold."""

    @property
    def real_tokens(self) -> int:
        """Positions that hold text."""
        ...

    @property
    def counts(self) -> tuple[int, ...]:
        """What there is to predict, by part of the loss."""
        ...

    def part(self, rows: slice) -> Any:
        """Some of the rows."""
        ...

    def pad(self, count: int) -> Any:
        """The rows and fully padded ones behind them, `count` in all."""
        ...


class AnyMicroBatch(Protocol):
    """Rows of one forward and backward pass, as tensors."""

    @property
    def samples(self) -> tuple[int, ...]:
        """Numbers of the rows; fewer than B when the last ones are padding."""
        ...


Part = TypeVar("Part", bound=AnyMicroBatch)
Tensors = Callable[[Any, tuple[int, ...], int, torch.device], Part]
"""Makes tensors of padded rows, given their numbers and the place of the first in the update."""


def inputs_of(part: AnyMicroBatch) -> dict[str, torch.Tensor]:
    """The tensors of a micro-batch by name."""
    return {name: one for name, one in vars(part).items() if isinstance(one, torch.Tensor)}


@dataclass(frozen=True)
class MicroBatch:
    """Rows of text that goes on, int64 [B, S]."""

    samples: tuple[int, ...]
    """See `AnyMicroBatch`."""
    input_ids: torch.Tensor
    targets: torch.Tensor
    position_ids: torch.Tensor
    segment_ids: torch.Tensor | None
    """None when no row holds a second document: causal order alone then keeps padding out."""


@dataclass(frozen=True)
class GlobalBatch(Generic[Part]):
    """The micro-batches of one update, and its tokens."""

    micro_batches: tuple[Part, ...]
    """Those of this rank; the numbers below are those of all ranks."""
    counts: tuple[int, ...]
    """What is predicted, by part of the loss: each part, and its gradient, is divided by its one number."""
    padded_tokens: int
    """Positions that are computed."""
    real_tokens: int
    """Positions that hold text."""
    rows: int
    """Rows without padded ones."""
    counts_there: torch.Tensor | None = None
    """The counts on the device, at least 1 each, where they must not be part of a graph."""

    @property
    def to_divide_by(self) -> Sequence[int] | torch.Tensor:
        """What the parts of the loss are means over."""
        return self.counts if self.counts_there is None else self.counts_there

    @property
    def target_tokens(self) -> int:
        """What the first part of the loss predicts."""
        return self.counts[0]


def text_tensors(rows: Rows, samples: tuple[int, ...], place: int, device: torch.device) -> MicroBatch:
    """Rows of packed text."""
    return MicroBatch(
        samples,
        tensor(rows.input_ids, device),
        tensor(rows.targets, device),
        tensor(rows.position_ids, device),
        tensor(rows.segment_ids, device) if rows.segment_ids.max() > 1 else None,
    )


def full_text_tensors(rows: Rows, samples: tuple[int, ...], place: int, device: torch.device) -> MicroBatch:
    """Rows of packed text, with the same tensors whatever documents there are."""
    columns = (rows.input_ids, rows.targets, rows.position_ids, rows.segment_ids)
    return MicroBatch(samples, *(tensor(one, device) for one in columns))


TEXT_TENSORS: dict[bool, Tensors[MicroBatch]] = {False: text_tensors, True: full_text_tensors}
"""By whether shapes must not depend on what the rows hold."""


def global_batch(
    examples: Examples[Any],
    samples: Sequence[Sample],
    micro_batch_size: int,
    device: torch.device,
    mesh: Mesh | None = None,
    tensors: Tensors[Part] = text_tensors,  # type: ignore[assignment]
    least: int = 0,
) -> GlobalBatch[Part]:
    """Read this rank's rows of one update; micro-batches are filled up with padded rows.

    With `least` there are so many of them at the least, and what there is to predict is a tensor, too: then
    no number and no shape depends on the rows.
    """
    mesh = mesh or Mesh()
    copies = mesh.data.size
    count = max(least, math.ceil(len(samples) / (micro_batch_size * copies)))
    starts = [(index * copies + mesh.data.rank) * micro_batch_size for index in range(count)]
    own = [samples[start : start + micro_batch_size] for start in starts]
    rows: AnyRows = examples.read([sample for run in own for sample in run])
    found = torch.tensor([*rows.counts, rows.real_tokens])
    *counts, real_tokens = sum_over_copies(mesh, found).tolist()
    return GlobalBatch(
        micro_batches=tuple(_cut(rows, own, starts, micro_batch_size, device, tensors)),
        counts=tuple(counts),
        padded_tokens=count * copies * micro_batch_size * examples.sequence_length,
        real_tokens=real_tokens,
        rows=len(samples),
        counts_there=_on_device(counts, device) if least else None,
    )


def _on_device(counts: Sequence[int], device: torch.device) -> torch.Tensor:
    return torch.tensor([max(1, count) for count in counts], dtype=torch.float32).to(device)


def micro_batch(
    examples: Examples[Any],
    samples: Sequence[Sample],
    size: int,
    device: torch.device,
    tensors: Tensors[Part] = text_tensors,  # type: ignore[assignment]
) -> Part:
    """Read the rows of one forward pass, filled up to `size` with padded rows."""
    return next(_cut(examples.read(samples), [samples], [0], size, device, tensors))


def _cut(
    rows: AnyRows,
    runs: Sequence[Sequence[Sample]],
    places: Sequence[int],
    size: int,
    device: torch.device,
    tensors: Tensors[Part],
) -> Iterator[Part]:
    start = 0
    for samples, place in zip(runs, places, strict=True):
        part = rows.part(slice(start, start + len(samples))).pad(size)
        start += len(samples)
        yield tensors(part, tuple(sample.number for sample in samples), place, device)


def tensor(array: IntArray, device: torch.device) -> torch.Tensor:
    """An array on the device."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
