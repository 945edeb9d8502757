"""What a process and a host hold at the fullest moment of an update.

State is exact, from the layout table. The rest is the larger of two moments of a micro-batch, while all
layers keep what they need: when the loss is computed, or in the backward pass of the last layer. With one
micro-batch in an update the gradients come into being while activations go. Where little is kept, two later
moments are the fullest: when the embedding's gradient arrives, or the optimizer's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from types import ModuleType

from kitae.model.memory import LOCAL_BYTES, OWN_BYTES
from kitae.model.tables import ModelConfig
from kitae.parallel.rows import rows_each
from kitae.plan import decoder_memory, encoder_memory
from kitae.plan.work import FP32, Work, layouts_of

IN_FLIGHT = 2
"""Buckets of gradients that travel at once, beside the one that fills."""


@dataclass(frozen=True)
class Memory:
    """Bytes of one process."""

    state: dict[str, int]
    """Parameters, gradients, optimizer (and master weights): exact."""
    kept: int
    """What all layers keep for the backward pass of a micro-batch."""
    loss: int
    """Hidden states at the loss, the logits of a chunk, and their gradients."""
    backward: int
    """What the backward pass of one layer needs beside what is kept."""
    embedding: int
    """The embedding's gradient when it arrives, beside the sum that it is added to."""
    update: int
    """What the optimizer needs beside the state."""
    buckets: int
    """Gradients and weights that travel between the copies."""
    gradients_before: bool
    """Whether gradients of earlier micro-batches are there while another one is computed."""

    @property
    def activations(self) -> int:
        """The larger of the two moments: at the loss, or in the last layer's backward pass."""
        return self.kept + max(self.loss, self.backward)

    @property
    def peak(self) -> int:
        """All at the fullest moment."""
        total = sum(self.state.values())
        before = 0 if self.gradients_before else self.state["gradients"]
        return max(
            total - before + self.activations, total + self.embedding, total + self.buckets + self.update
        )

    @property
    def extra(self) -> int:
        """What the peak holds beside the state."""
        return self.peak - sum(self.state.values())


def memory_of(work: Work) -> Memory:
    """What the process that holds most holds."""
    kind: ModuleType = decoder_memory if work.is_decoder else encoder_memory
    copies = work.data_parallel if work.zero1 else 1
    state, largest = _state(work.config, work.tied, work.tensor_parallel, copies, work.precision)
    layers = kind.kept_by_layer(work, work.recompute) * work.config.num_layers
    again = kind.kept_by_layer(work, "none") if work.recompute == "full" else 0
    weight = _head_gradient(work)
    return Memory(
        state=dict(state),
        kept=layers + kind.shared(work),
        loss=kind.ends(work) + _loss(work),
        backward=again + kind.backward_of_layer(work) + weight,
        embedding=_embedding(work),
        update=_update(work, largest),
        buckets=_buckets(work),
        gradients_before=work.micro_batches > 1,
    )


@lru_cache(maxsize=1024)
def _state(
    config: ModelConfig, tied: bool, size: int, copies: int, precision: str
) -> tuple[dict[str, int], int]:
    """Bytes by kind, and elements of the largest parameter that the first copy, which has most, updates."""
    shapes = [one.shape for one in layouts_of(config, tied, size)]
    local = sum(map(prod, shapes))
    own = [rows_each(rows, copies) * prod(rest) for rows, *rest in shapes]
    state = {
        **{kind: local * each for kind, each in LOCAL_BYTES[precision].items()},
        **{kind: sum(own) * each for kind, each in OWN_BYTES[precision].items()},
    }
    return state, max(own)


def _head_gradient(work: Work) -> int:
    """The gradient of the head, which is made with the loss."""
    if work.objective == "classification":
        return 0
    return work.vocabulary * work.config.hidden_size * FP32


def _loss(work: Work) -> int:
    """The logits of a chunk, the gradient of the head and that of the hidden states."""
    if work.objective == "classification":
        return 0
    hidden, rows = work.config.hidden_size, work.vocabulary
    chunk = min(work.chunk_tokens, work.targets)
    logits = chunk * rows * FP32
    if work.product_bytes < FP32:  # products come in bf16, and the head's gradient is added a chunk at a time
        logits += max(chunk * rows, hidden * rows) * work.product_bytes
    if work.precision == "autocast":
        logits += rows * hidden * work.product_bytes
    return logits + _head_gradient(work) + work.targets * hidden * work.hidden_bytes


def _embedding(work: Work) -> int:
    """It comes whole, in the dtype of the weights; a head that is the embedding has sent its own before."""
    elements, heads = (
        work.vocabulary * work.config.hidden_size,
        work.tied and work.objective != "classification",
    )
    arriving = elements * work.hidden_bytes * (1 + heads)
    if work.micro_batches > 1:  # to be added to an fp32 sum, bf16 is turned into it
        return arriving + (elements * FP32 if work.hidden_bytes < FP32 else 0)
    return arriving - (elements * FP32 if work.hidden_bytes == FP32 else 0)


def _update(work: Work, largest: int) -> int:
    """fp32 copies of the largest parameter: rounding by chance has one, LAMB its direction and another."""
    copies = (work.precision == "bf16-sr") + (work.optimizer == "lamb") * 2
    return copies * largest * FP32


def _buckets(work: Work) -> int:
    """Between copies: what was sent, what comes, and the results of the own rows."""
    if work.data_parallel == 1:
        return 0
    largest, all_of_them = (size * work.wire_bytes for size in (work.sizes.largest, work.sizes.elements))
    bucket = min(max(work.bucket_bytes, largest), all_of_them)
    return 2 * (IN_FLIGHT + 1) * bucket
