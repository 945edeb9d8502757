"""Which attention a decoder has on a Neuron chip: the SDK's own flash kernel, or the plain static form.

The kernel is that of neuronx-distributed (`kernels.flash_attn.nki_flash_attn_func`), as its Llama example
uses it: causal, queries, keys and values [B, heads, S, D] of one number of heads, S a multiple of 2048, D up
to 128. It knows no mask: documents that share a row see each other. The plain form keeps them apart, and
holds a [S, S] matrix of scores a head. On a CPU and on CUDA there is nothing to choose. Not run on such a
chip.

B batch, S sequence, N query heads, G KV heads, D head size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from kitae.errors import RecipeError
from kitae.model.attention import OwnKernel, Tensor

Wanted = Literal["auto", "plain", "kernel"]
LENGTH_MULTIPLE = 2048
LARGEST_HEAD = 128
_KERNEL = ("neuronx_distributed.kernels.flash_attn", "nki_flash_attn_func")


@dataclass(frozen=True)
class Asked:
    """What attention has to do in a training."""

    length: int
    """Tokens in a row."""
    head_size: int
    windows: frozenset[int | None]
    """Sliding windows of the layers; None where a layer sees the whole row."""
    precision: str
    document_mask: bool
    causal: bool = True


@dataclass(frozen=True)
class Choice:
    """Which attention it is, and why."""

    kind: Literal["plain", "kernel"]
    reason: str
    kernel: OwnKernel | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"attention: {_NAMES[self.kind]}: {self.reason}"


_NAMES = {"plain": "the plain static form", "kernel": "the SDK's flash kernel"}
Source = Callable[[], "OwnKernel | str"]
"""Gives the kernel of a kind of machine, or says why there is none."""


def sdk_kernel() -> OwnKernel | str:
    """The kernel for torch-xla on a chip, or why it is not there."""
    module, name = _KERNEL
    try:
        return OwnKernel(_with_own_layout(getattr(import_module(module), name)))
    except Exception as error:  # a package of another release raises anything
        first, *_ = str(error).splitlines() or [type(error).__name__]
        return f"{module}.{name} is not there ({first})"


NONE_KNOWN = "TorchNeuron computes scaled_dot_product_attention itself, and no other kernel is known"
SOURCES: Mapping[str, Source | str] = {"trn1-xla": sdk_kernel, "torchneuron": NONE_KNOWN}
"""By stack (backend.stack): what gives the kernel, or why none is known. Others have nothing to choose."""


def choose_attention(wanted: Wanted, stack: str, asked: Asked) -> Choice | None:
    """The attention of a training on this stack, None where there is only one.

    auto takes the kernel where it is there, fits, and nothing is given up. `RecipeError` where the kernel is
    wanted on a chip that has none, or does not fit.
    """
    if stack not in SOURCES:
        return None
    if wanted == "plain":
        return Choice("plain", "training.attention says so")
    source = SOURCES[stack]
    unfit = [reason for rule in _RULES if (reason := rule(asked)) is not None]
    if isinstance(source, str) or unfit:
        return _without(wanted, source if isinstance(source, str) else "; ".join(unfit))
    kernel = source()
    if isinstance(kernel, str):
        return _without(wanted, kernel)
    if asked.document_mask and wanted == "auto":
        text = "rows hold several documents, which the kernel cannot keep apart"
        out = "training.attention: kernel, or data.document_mask: false, gives that up"
        return Choice("plain", f"{text}; {out}")
    given_up = ": documents that share a row see each other" if asked.document_mask else ""
    why = "training.attention says so" if wanted == "kernel" else "it is there, fits, and gives nothing up"
    return Choice("kernel", f"{why}{given_up}", kernel)


def _without(wanted: Wanted, reason: str) -> Choice:
    if wanted == "kernel":
        raise RecipeError(
            f"training.attention: the kernel cannot be used: {reason}; take auto or plain, or change that"
        )
    return Choice("plain", reason)


def _of_the_future(asked: Asked) -> str | None:
    return None if asked.causal else "every token sees all others, and the kernel is causal"


def _length(asked: Asked) -> str | None:
    fits = asked.length % LENGTH_MULTIPLE == 0
    return None if fits else f"rows of {asked.length} tokens are no multiple of {LENGTH_MULTIPLE}"


def _head(asked: Asked) -> str | None:
    fits = asked.head_size <= LARGEST_HEAD
    return None if fits else f"heads of {asked.head_size} are larger than {LARGEST_HEAD}"


def _window(asked: Asked) -> str | None:
    return None if asked.windows <= {None} else "layers have a sliding window"


def _digits(asked: Asked) -> str | None:
    return "fp32 is wanted, and the kernel is used in bf16" if asked.precision == "fp32" else None


_RULES: tuple[Callable[[Asked], str | None], ...] = (_of_the_future, _length, _head, _window, _digits)
"""Why the kernel does not fit, or None."""


def _with_own_layout(kernel: Callable[..., Any]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The kernel on [B, S, N, D] and [B, S, G, D], giving [B, S, N, D]: KV heads are repeated for it."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        copies = q.shape[2] // k.shape[2]
        k, v = (_repeated(one, copies) for one in (k, v))
        mixed: Tensor = kernel(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return mixed.transpose(1, 2)

    return attend


def _repeated(x: Tensor, copies: int) -> Tensor:
    """[B, S, G, D] with each head `copies` times, beside each other."""
    batch, length, heads, size = x.shape
    return x[:, :, :, None].expand(batch, length, heads, copies, size).reshape(batch, length, -1, size)
