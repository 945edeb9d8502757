"""What one process of a training computes and holds, as numbers.

B rows, S sequence, T = B S tokens of a micro-batch, t the tokens of the token-wise side (see
parallel.region), H hidden, I intermediate, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, prod

from kitae.model.config import DecoderConfig
from kitae.model.tables import ModelConfig, table_of
from kitae.parallel.cuts import padded_vocabulary
from kitae.parallel.grid import RINGS
from kitae.parallel.layout import ParameterLayout
from kitae.recipe.masking import MaskingConfig
from kitae.recipe.schema import Recipe, global_batch_size

FP32 = 4
HIDDEN_BYTES = {"fp32": 4, "bf16": 2, "bf16-sr": 2, "autocast": 4}
"""Of a number of the hidden states between layers, by precision."""
PRODUCT_BYTES = {"fp32": 4, "bf16": 2, "bf16-sr": 2, "autocast": 2}
"""Of a number inside layers."""
WIRE_BYTES = {"fp32": 4, "bf16": 2}
KERNEL_LENGTH, KERNEL_HEAD = 2048, 128
"""Rows of a multiple of this, and heads up to this, fit the kernel that `model/neuron_attention.py` knows."""


@dataclass(frozen=True)
class Work:
    """A model, and how one phase of a recipe trains it."""

    config: ModelConfig
    tied: bool
    """Whether the head is the embedding."""
    objective: str
    optimizer: str
    precision: str
    recompute: str
    rows: int
    """Of a micro-batch."""
    length: int
    """Positions in a row."""
    global_rows: int
    """Of an update."""
    predictions: int
    """Most targets in a row."""
    chunk_tokens: int
    """Tokens whose logits are held at once."""
    hidden_dropout: bool
    attention_dropout: bool
    document_mask: bool
    """Whether a row's tokens see only their own document."""
    tensor_parallel: int
    data_parallel: int
    sequence_parallel: bool
    zero1: bool
    wire_bytes: int
    """Of a gradient between copies."""
    bucket_bytes: int
    backend: str
    pipeline: int = 1
    """Stages that layers are cut into; kitae has one, published rows of others have more."""
    scores: str = "fused"
    """What becomes of attention's probabilities without dropout: fused in one kernel; kept for the backward
    pass; or computed again there, as some published rows of others have it."""
    sum_bytes: int = FP32
    """Of a gradient's sum and of the optimizer's moments; some published rows of others had them in bf16."""

    @property
    def world(self) -> int:
        """Processes."""
        return self.tensor_parallel * self.data_parallel * self.pipeline

    @property
    def micro_batches(self) -> int:
        """Of one copy in an update."""
        return ceil(self.global_rows / (self.rows * self.data_parallel))

    @property
    def tokens(self) -> int:
        """Of a micro-batch."""
        return self.rows * self.length

    @property
    def tokenwise(self) -> int:
        """Tokens of a process where states are token-wise."""
        return self.tokens // self.tensor_parallel if self.sequence_parallel else self.tokens

    @property
    def has_ring(self) -> bool:
        """Whether the processes of a copy are joined by links: on Trainium1 not any number of them."""
        size = self.tensor_parallel
        return self.backend != "xla" or size == 1 or size in RINGS or size % max(RINGS) == 0

    @property
    def hidden_bytes(self) -> int:
        """Of a number between layers."""
        return HIDDEN_BYTES[self.precision]

    @property
    def product_bytes(self) -> int:
        """Of a number inside layers."""
        return PRODUCT_BYTES[self.precision]

    @property
    def is_decoder(self) -> bool:
        """Or an encoder."""
        return isinstance(self.config, DecoderConfig)

    @property
    def blocked(self) -> bool:
        """Whether attention is kitae's own of a CPU in fp32, or one fused call."""
        return self.backend == "cpu" and self.product_bytes == FP32

    @property
    def heads(self) -> int:
        """Query heads of a process."""
        return self.config.num_heads // self.tensor_parallel

    @property
    def kv_heads(self) -> int:
        """Key and value heads of a process; several processes hold the same ones when there are few."""
        heads = self.config.num_kv_heads if isinstance(self.config, DecoderConfig) else self.config.num_heads
        return max(1, heads // self.tensor_parallel)

    @property
    def inner(self) -> int:
        """Intermediate size of a process."""
        return self.config.intermediate_size // self.tensor_parallel

    @property
    def vocabulary(self) -> int:
        """Rows of the embedding in a process, padding included."""
        return padded_vocabulary(self.config.vocab_size, self.tensor_parallel) // self.tensor_parallel

    @property
    def targets(self) -> int:
        """Most targets of a micro-batch."""
        return self.rows * self.predictions

    @cached_property
    def layouts(self) -> list[ParameterLayout]:
        """Local parameters of the first process, which none exceeds."""
        return layouts_of(self.config, self.tied, self.tensor_parallel)

    @cached_property
    def sizes(self) -> Sizes:
        """How large those are."""
        return _sizes(self.config, self.tied, self.tensor_parallel)

    @property
    def parameters(self) -> list[ParameterLayout]:
        """Parameters of the whole model."""
        return layouts_of(self.config, self.tied, 1)


@dataclass(frozen=True)
class Sizes:
    """Local parameters, counted."""

    tensors: int
    elements: int
    largest: int
    """Elements of the largest one."""


# A search asks for the same few cuts thousands of times.
@lru_cache(maxsize=64)
def layouts_of(config: ModelConfig, tied: bool, size: int) -> list[ParameterLayout]:
    """Local parameters of the first of `size` tensor-parallel processes."""
    return table_of(config, tied)(size, 0)


@lru_cache(maxsize=64)
def _sizes(config: ModelConfig, tied: bool, size: int) -> Sizes:
    elements = [prod(one.shape) for one in layouts_of(config, tied, size)]
    return Sizes(len(elements), sum(elements), max(elements))


def work_of(recipe: Recipe, config: ModelConfig, tied: bool, backend: str) -> Work:
    """What a resolved recipe, or one phase of it as a recipe, computes."""
    training, parallel = recipe.training, recipe.parallel
    rows, copies = training.micro_batch_size, parallel.data_parallel_size
    assert rows != "auto", "the recipe is resolved"
    assert copies != "auto", "the recipe is resolved"
    hidden, attention = _dropout(recipe, config)
    return Work(
        config=config,
        tied=tied,
        objective=recipe.objective,
        optimizer=recipe.optimizer.name,
        precision=training.precision,
        recompute=training.recompute,
        rows=rows,
        length=recipe.data.sequence_length,
        global_rows=global_batch_size(recipe),
        predictions=_predictions(recipe),
        chunk_tokens=training.loss_chunk_tokens,
        hidden_dropout=hidden,
        attention_dropout=attention,
        document_mask=recipe.data.document_mask,
        tensor_parallel=parallel.tensor_parallel_size,
        data_parallel=copies,
        sequence_parallel=parallel.sequence_parallel and parallel.tensor_parallel_size > 1,
        zero1=bool(parallel.zero1),
        wire_bytes=WIRE_BYTES[parallel.reduce_dtype],
        bucket_bytes=parallel.bucket_bytes,
        backend=backend,
        scores=_scores(recipe, config, backend),
    )


def _scores(recipe: Recipe, config: ModelConfig, backend: str) -> str:
    """On Trainium1 there is the SDK's kernel, where it fits and the recipe gives nothing up for it."""
    training, data = recipe.training, recipe.data
    if backend != "xla" or not isinstance(config, DecoderConfig):
        return "fused"
    fits = data.sequence_length % KERNEL_LENGTH == 0 and config.head_dim <= KERNEL_HEAD
    fits = fits and set(config.windows) <= {None} and training.precision != "fp32"
    wanted = training.attention == "kernel" or (training.attention == "auto" and not data.document_mask)
    return "fused" if fits and wanted else "kept"


def _predictions(recipe: Recipe) -> int:
    if recipe.objective == "causal-lm":
        return recipe.data.sequence_length
    if recipe.objective == "classification":
        return 1
    return (recipe.data.masking or MaskingConfig()).predictions(recipe.data.sequence_length)


def _dropout(recipe: Recipe, config: ModelConfig) -> tuple[bool, bool]:
    """Of hidden states, and of attention's probabilities."""
    if isinstance(config, DecoderConfig):
        return False, False
    given = recipe.training.dropout
    return (
        (config.hidden_dropout > 0, config.attention_dropout > 0)
        if given == "auto"
        else (given > 0, given > 0)
    )
