"""Between what a tensor-parallel rank computes for its own tokens and what it computes with its own weights.

Hidden states between the parts of a layer are *token-wise*: all T tokens on every rank, or, with sequence
parallelism, T / tp consecutive ones. A part *enters* with all tokens, computes with its share of the weights,
and *leaves* with a sum over the ranks:

                         enter, gradient       leave, gradient
    alone                nothing               nothing
    tensor parallel      same, all-reduce      all-reduce, same
    and sequence         gather, scatter       scatter, gather      (all-gather, reduce-scatter)

So either's gradient is the other one, and two plain functions, `gather` and `reduce`, make up both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from sys import maxsize
from typing import Any, Protocol

import torch
from torch.autograd import Function
from torch.nn import functional as F

from kitae.backend.group import ALONE, Group, Pending
from kitae.errors import RecipeError
from kitae.parallel.layout import ParameterLayout

Tensor = torch.Tensor


def in_graph(device: torch.device) -> bool:
    """Whether operations on this device become a program that all ranks have to have alike."""
    return device.type == "xla"


def of_rank(value: Any, device: torch.device) -> Any:
    """A number that is another one on every rank: in a graph a tensor [1], and so an input of it.

    As a constant it would make every rank's program another one. torch-xla takes a tensor without dimensions
    that holds 0 or 1 for a constant, too.
    """
    return torch.tensor([value], device=device) if in_graph(device) else value


class Coming(Protocol):
    """A tensor that is on its way."""

    def wait(self) -> Tensor:
        """Return it, once it is there."""
        ...


@dataclass(frozen=True)
class _Arrived:
    tensor: Tensor

    def wait(self) -> Tensor:
        return self.tensor


@dataclass(frozen=True)
class _Travelling:
    pending: Pending
    tensor: Tensor

    def wait(self) -> Tensor:
        self.pending.wait()
        return self.tensor


@dataclass(frozen=True)
class Region:
    """A rank that is alone: all tokens and all weights are here, and nothing has to be done."""

    group: Group = ALONE

    def begin_gather(self, tensor: Tensor) -> Coming:
        """Begin to give every rank the tokens of all: token-wise [t, ...] to [T, ...]."""
        return _Arrived(tensor)

    def begin_reduce(self, tensor: Tensor) -> Coming:
        """Begin to sum the ranks' [T, ...] into token-wise [t, ...]; `tensor` may be overwritten."""
        return _Arrived(tensor)

    def gather(self, tensor: Tensor) -> Tensor:
        """`begin_gather`, and wait."""
        return self.begin_gather(tensor).wait()

    def reduce(self, tensor: Tensor) -> Tensor:
        """`begin_reduce`, and wait."""
        return self.begin_reduce(tensor).wait()

    def own(self, tensor: Tensor) -> Tensor:
        """What is token-wise here of values [T, ...] that every rank has."""
        return tensor

    def enter(self, tensor: Tensor) -> Tensor:
        """`gather` whose gradient is the ranks' sum: what follows gives each rank a part of it."""
        return tensor

    def leave(self, tensor: Tensor) -> Tensor:
        """`reduce` whose gradient is the same on every rank; `tensor` may be overwritten."""
        return tensor

    def once(self, tensor: Tensor) -> Tensor:
        """What every rank computes alike from what it entered with: one of them gives all the gradient."""
        return tensor

    def row_parallel(self, linear: Callable[[Tensor | None], Tensor], bias: Tensor | None) -> Tensor:
        """`linear(bias)` with inputs cut over the ranks: leave with the sum, and add the bias once, to it."""
        return linear(bias)

    def check_tokens(self, count: int) -> None:
        """Raise RecipeError where `count` tokens cannot be shared out."""


class _TensorParallel(Region):
    def begin_reduce(self, tensor: Tensor) -> Coming:
        tensor = tensor.contiguous()
        return _Travelling(self.group.start_all_reduce(tensor), tensor)

    def enter(self, tensor: Tensor) -> Tensor:
        return _Enter.apply(tensor, self)  # type: ignore[no-any-return, no-untyped-call]

    def leave(self, tensor: Tensor) -> Tensor:
        return _Leave.apply(tensor, self)  # type: ignore[no-any-return, no-untyped-call]

    def once(self, tensor: Tensor) -> Tensor:
        counts = of_rank(float(self.group.rank == 0), tensor.device)
        return _Once.apply(tensor, counts)  # type: ignore[no-any-return, no-untyped-call]

    def row_parallel(self, linear: Callable[[Tensor | None], Tensor], bias: Tensor | None) -> Tensor:
        total = self.leave(linear(None))
        return total if bias is None else total + bias.to(total.dtype)


class _SequenceParallel(_TensorParallel):
    def own(self, tensor: Tensor) -> Tensor:
        if not in_graph(tensor.device):
            return tensor.chunk(self.group.size)[self.group.rank]
        runs = tensor.view(self.group.size, -1, *tensor.shape[1:])
        return runs.index_select(0, of_rank(self.group.rank, tensor.device)).squeeze(0)

    def begin_gather(self, tensor: Tensor) -> Coming:
        output = tensor.new_empty((self.group.size * tensor.shape[0], *tensor.shape[1:]))
        return _Travelling(self.group.start_all_gather(output, tensor), output)

    def begin_reduce(self, tensor: Tensor) -> Coming:
        output = tensor.new_empty((tensor.shape[0] // self.group.size, *tensor.shape[1:]))
        return _Travelling(self.group.start_reduce_scatter(output, tensor), output)

    def check_tokens(self, count: int) -> None:
        if count % self.group.size:
            raise RecipeError(
                f"parallel.sequence_parallel: {count} tokens (rows x length) do not share out evenly over "
                f"{self.group.size} tensor-parallel ranks; choose rows and a length whose product is a "
                f"multiple of {self.group.size}, or set sequence_parallel to false"
            )


class _Enter(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, region: Region) -> Tensor:
        ctx.region = region
        gathered = region.gather(tensor)
        return gathered.view_as(gathered)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # a copy, because others may hold the gradient too
        return ctx.region.reduce(gradient.clone(memory_format=torch.contiguous_format)), None


class _Leave(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, region: Region) -> Tensor:
        ctx.region = region
        total = region.reduce(tensor)
        if total is tensor:
            ctx.mark_dirty(tensor)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.region.gather(gradient), None


class _Once(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, counts: Any) -> Tensor:
        ctx.counts = counts
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        if isinstance(ctx.counts, torch.Tensor):
            return gradient * ctx.counts.to(gradient.dtype), None
        return gradient if ctx.counts else torch.zeros_like(gradient), None


UNCUT = Region()
"""The region of a process that holds the whole model."""


def region_of(group: Group, sequence_parallel: bool) -> Region:
    """The region of a tensor-parallel group; a group of one is alone, with or without `sequence_parallel`."""
    if group.size == 1:
        return UNCUT
    return _SequenceParallel(group) if sequence_parallel else _TensorParallel(group)


@dataclass(frozen=True)
class Vocabulary:
    """Which rows of the embedding and of the head are here; by default all, and none of them padding."""

    group: Group = ALONE
    first: int = 0
    """Number, in the vocabulary, of the first row here."""
    real: int = maxsize
    """How many of the rows here, at most, are of the vocabulary; the rest is padding."""

    def locate(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Each id's row here, and whether it is here at all; where it is not, the row is some other."""
        if self.group.size == 1:
            return ids.clamp(min=0), ids >= 0
        first, last, real = (
            of_rank(one, ids.device) for one in (self.first, max(self.real - 1, 0), self.real)
        )
        row = ids - first
        return row.clamp(min=0).clamp(max=last), (row >= 0) & (row < real)

    def hide_padding(self, logits: Tensor) -> Tensor:
        """Logits [..., V / tp] with -inf in rows that are padding; `logits` may be overwritten."""
        if self.group.size == 1:
            return logits
        if in_graph(logits.device):
            row = torch.arange(logits.shape[-1], device=logits.device)
            return torch.where(row < of_rank(self.real, logits.device), logits, float("-inf"))
        logits[..., self.real :] = float("-inf")
        return logits

    def look_up(self, weight: Tensor, ids: Tensor) -> Tensor:
        """Rows of `weight` [V / tp, H] for ids [T]: [T, H], to be summed over the ranks."""
        if self.group.size == 1:
            return F.embedding(ids, weight)
        index, here = self.locate(ids)
        return F.embedding(index, weight).masked_fill(~here[..., None], 0)


WHOLE_VOCABULARY = Vocabulary()


def vocabulary_of(embedding: ParameterLayout, region: Region) -> Vocabulary:
    """The rows that the layout of an embedding says are here."""
    if region.group.size == 1:
        return WHOLE_VOCABULARY
    box = embedding.pieces[0].box
    return Vocabulary(region.group, box.start[0], box.shape[0])
