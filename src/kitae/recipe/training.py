"""How the model is trained, watched, saved, exported and proven."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from kitae.recipe.base import Duration, FieldError, NonEmpty, Positive, PositiveDuration, Section

NotNegative = Annotated[float, Field(ge=0)]
Beta = Annotated[float, Field(ge=0, lt=1)]


class OptimizerConfig(Section):
    """The optimizer. Biases and norm weights are never decayed."""

    name: Literal["adamw", "lamb"] = "adamw"
    """AdamW (Loshchilov and Hutter, 2019), or LAMB (You et al., 2020) for very large batches."""
    learning_rate: Annotated[float, Field(gt=0)] = 3e-4
    """Peak learning rate."""
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    """Decay rates of the first and the second moment."""
    eps: Annotated[float, Field(gt=0)] = 1e-8
    """Added to the root of the second moment."""
    weight_decay: NotNegative = 0.1
    """Decoupled decay of matrices."""
    max_grad_norm: Annotated[float, Field(gt=0)] | None = 1.0
    """Global gradient norm to clip to; null does not clip."""
    max_trust_ratio: Annotated[float, Field(gt=0)] | None = None
    """Most that LAMB's trust ratio may be (1 in the vendor's BERT); null: no bound, as published."""


class ScheduleConfig(Section):
    """The learning rate over optimizer updates."""

    kind: Literal["linear", "cosine", "constant"] = "cosine"
    """Shape of the decay after the warm-up."""
    warmup: Duration = Duration(0, "steps")
    """Linear rise from 0 to the peak."""
    min_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the peak that the decay ends at."""


class TrainingConfig(Section):
    """Length, batch, precision and memory of the training."""

    duration: PositiveDuration
    """How long to train, from the first step: steps (optimizer updates), tokens or epochs."""
    global_batch_size: Positive = 8
    """Rows in one optimizer update."""
    micro_batch_size: Positive | Literal["auto"] = "auto"
    """Rows in one forward and backward pass; auto: the largest divisor of the batch up to 8192 tokens."""
    precision: Literal["auto", "fp32", "bf16", "bf16-sr", "autocast"] = "auto"
    """fp32; bf16 with fp32 master weights; bf16-sr: bf16 weights alone, rounded by chance; autocast: fp32
    weights, products in bf16. Gradient sums and optimizer state are fp32 in each. auto: fp32 on a CPU."""
    dropout: Annotated[float, Field(ge=0, lt=1)] | Literal["auto"] = "auto"
    """Share of activations left out at random, where the model has such layers; auto: as its config says."""
    attention: Literal["auto", "plain", "kernel"] = "auto"
    """Of a decoder on a Neuron chip: plain keeps the documents of a row apart (data.document_mask); kernel,
    the SDK's flash kernel, does not, and needs rows of a multiple of 2048 tokens; auto: the kernel where
    nothing is given up by it. Without such a chip it has no effect."""
    recompute: Literal["none", "selective", "full"] = "none"
    """What the backward pass computes again: nothing, cheap activations (norms, gating), or whole blocks."""
    loss_chunk_tokens: Positive = 512
    """Tokens whose logits are held at once."""

    @model_validator(mode="after")
    def _validate(self) -> TrainingConfig:
        self.check()
        return self

    def check(self) -> None:
        """Raise `FieldError` when the micro-batches do not make up the batch."""
        if self.micro_batch_size != "auto" and self.global_batch_size % self.micro_batch_size:
            raise FieldError(
                "micro_batch_size",
                f"global_batch_size ({self.global_batch_size}) is not a multiple of {self.micro_batch_size}; "
                "change one of them, or write auto",
            )


class EvaluationConfig(Section):
    """Held-out loss: token-weighted, over the same rows each time."""

    every: PositiveDuration | Literal["never"] = "never"
    """How often to evaluate during training; before the first and after the last step it is always done."""
    max_rows: Positive | None = None
    """Use only the first rows of the held-out text."""
    micro_batch_size: Positive | Literal["auto"] = "auto"
    """Rows in one forward pass; auto takes that of the training."""


class CheckpointConfig(Section):
    """When to save, and what to keep. The last step is always saved."""

    every: PositiveDuration | Literal["never"] = "never"
    """How often to save during training."""
    keep: Positive = 2
    """How many of the newest checkpoints of this run to keep."""
    keep_best: bool = False
    """Also keep the one with the lowest held-out loss."""
    asynchronous: bool = False
    """Copy the state and write it while the training goes on; costs the memory of one more copy."""


class ExportConfig(Section):
    """The Hugging Face folder that the run ends with."""

    dtype: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Type of the weights; auto keeps what the model came with, fp32 for a new one."""
    max_shard_bytes: Annotated[int, Field(ge=1 << 16)] = 5_000_000_000
    """Size at which a further weights file is begun."""


class ProofConfig(Section):
    """How the exported folder is proven against transformers."""

    max_logit_difference: Annotated[float, Field(gt=0)] = 1e-4
    """Largest allowed difference between kitae's and transformers' logits, in fp32."""
    prompts: Annotated[list[NonEmpty], Field(min_length=1)] = Field(
        default=["Gravity is", "def add(a, b):", "今日は天気がいいので、"]
    )
    """Texts whose logits are compared."""


class SampleConfig(Section):
    """A text continued before and after the training."""

    prompt: NonEmpty
    """The beginning of the text."""
    max_new_tokens: Positive = 40
    """Tokens to add."""
    temperature: NotNegative = 0.0
    """0 takes the likeliest token; above it, tokens are drawn, keyed by the recipe's seed."""
    top_k: Positive | None = None
    """Draw from the k likeliest tokens."""
