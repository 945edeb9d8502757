"""`train.loss` for compilers that know only fixed shapes: every token takes part, with or without target.

What a token without a target gives is multiplied by zero. Nothing is computed in place, and chunks are cut by
number, so that one program fits all rows. N tokens, H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from kitae.model.kernels import product_dtype
from kitae.parallel.region import WHOLE_VOCABULARY, Vocabulary
from kitae.train.loss import IGNORE

Tensor = torch.Tensor
Scale = float | Tensor


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    bias: Tensor | None = None,
    scale: Scale = 1.0,
    chunk_tokens: int = 512,
    vocabulary: Vocabulary = WHOLE_VOCABULARY,
) -> Tensor:
    """As `train.loss.linear_cross_entropy`; the scale may be a tensor, whose value is not part of a graph."""
    apply: Any = _LinearCrossEntropy.apply  # torch does not type it
    loss: Tensor = apply(hidden, weight, bias, targets, scale, chunk_tokens, vocabulary)
    return loss


@torch.no_grad()
def token_scores(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    bias: Tensor | None = None,
    chunk_tokens: int = 512,
    vocabulary: Vocabulary = WHOLE_VOCABULARY,
) -> tuple[Tensor, Tensor]:
    """As `train.loss.token_scores`."""
    softmax = _Softmax(weight, bias, vocabulary)
    chunks = [softmax(hidden[rows], targets[rows]) for rows in _chunks(len(targets), chunk_tokens)]
    return torch.cat([chunk.losses for chunk in chunks]), torch.cat([chunk.right for chunk in chunks])


class _LinearCrossEntropy(torch.autograd.Function):
    """See `linear_cross_entropy`."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        scale: Scale,
        chunk_tokens: int,
        vocabulary: Vocabulary,
    ) -> Tensor:
        softmax = _Softmax(weight, bias, vocabulary)
        total, of_weight, of_bias, of_hidden = _Total(), _Total(), _Total(), []
        for rows in _chunks(len(targets), chunk_tokens):
            inputs = hidden[rows]
            chunk = softmax(inputs, targets[rows])
            total.add(chunk.losses.sum())
            factor = (chunk.has_target * (scale / chunk.sums))[:, None]
            slopes = chunk.slopes()
            if bias is not None:
                of_bias.add(factor[:, 0] @ slopes)
            slopes = slopes.to(softmax.weight.dtype)
            of_hidden.append(((slopes @ softmax.weight) * factor).to(hidden.dtype))
            of_weight.add((slopes.t() @ (inputs * factor).to(slopes.dtype)).float())
        ctx.gradients = torch.cat(of_hidden), of_weight.value, of_bias.value
        ctx.weight_dtype = weight.dtype
        assert total.value is not None, "a loss of no token"
        return total.value * scale

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        (hidden, weight, bias), ctx.gradients = ctx.gradients, None
        of_bias = None if bias is None else (bias * slope).to(ctx.weight_dtype)
        return hidden * slope, (weight * slope).to(ctx.weight_dtype), of_bias, None, None, None, None


class _Total:
    """A sum that begins with its first part."""

    def __init__(self) -> None:
        self.value: Tensor | None = None

    def add(self, part: Tensor) -> None:
        self.value = part if self.value is None else self.value + part


def _chunks(tokens: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, tokens)) for start in range(0, tokens, size))


@dataclass(frozen=True)
class _Chunk:
    """The softmax of some tokens, times their sums."""

    exponentials: Tensor
    """e**(logits - maximum), [chunk, V / tp] fp32."""
    sums: Tensor
    """Of all ranks' exponentials, fp32 [chunk]."""
    losses: Tensor
    """fp32 [chunk], 0 without a target."""
    right: Tensor
    """Whether the target is the likeliest, bool [chunk]."""
    has_target: Tensor
    """1 or 0, fp32 [chunk]."""
    one_hot: Tensor
    """Where the target is, bool [chunk, V / tp]."""

    def slopes(self) -> Tensor:
        """Softmax minus the one-hot target, times the sums."""
        return torch.where(self.one_hot, self.exponentials - self.sums[:, None], self.exponentials)


class _Softmax:
    """Softmax over the vocabulary for a chunk of tokens."""

    def __init__(self, weight: Tensor, bias: Tensor | None, vocabulary: Vocabulary) -> None:
        self.weight = weight.to(product_dtype(weight))
        self.bias = None if bias is None else bias.float()
        self.vocabulary = vocabulary
        self.rows = torch.arange(len(weight), device=weight.device)

    def __call__(self, inputs: Tensor, targets: Tensor) -> _Chunk:
        """Of `inputs` [chunk, H] and ids [chunk]."""
        group, logits = self.vocabulary.group, self._logits(inputs.to(self.weight.dtype))
        index, here = self.vocabulary.locate(targets)
        one_hot = (self.rows == index[:, None]) & here[:, None]
        of_targets = torch.where(one_hot, logits, 0).sum(1)
        largest = group.all_reduce(logits.amax(1), "max")
        exponentials = (logits - largest[:, None]).exp()
        sums, of_targets = group.all_reduce(torch.stack((exponentials.sum(1), of_targets)))
        has_target = targets != IGNORE
        losses = torch.where(has_target, largest + sums.log() - of_targets, 0)
        right = has_target & (of_targets >= largest)
        return _Chunk(exponentials, sums, losses, right, has_target.float(), one_hot)

    def _logits(self, inputs: Tensor) -> Tensor:
        logits = (inputs @ self.weight.t()).float()
        if self.bias is not None:
            logits = logits + self.bias
        return self.vocabulary.hide_padding(logits)
