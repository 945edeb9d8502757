"""How the model is trained, watched, saved, exported and proven."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from kitae.recipe.base import Duration, Section
from kitae.recipe.sources import Positive

NotNegative = Annotated[float, Field(ge=0)]
Beta = Annotated[float, Field(ge=0, lt=1)]


class OptimizerConfig(Section):
    """The optimizer. Biases and norm weights are never decayed."""

    name: Literal["adamw"] = "adamw"
    """AdamW with decoupled weight decay (Loshchilov and Hutter, 2019)."""
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

    duration: Duration
    """How long to train, from the first step: steps (optimizer updates), tokens or epochs."""
    global_batch_size: Positive = 8
    """Rows in one optimizer update."""
    micro_batch_size: Positive | Literal["auto"] = "auto"
    """Rows in one forward and backward pass; auto takes the largest divisor of the global batch up to 8192 tokens."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """fp32, or bf16 weights with fp32 master weights, gradient sums and optimizer state; auto: fp32 on a CPU."""
    recompute: Literal["none", "selective", "full"] = "none"
    """Activations to compute again in the backward pass: none, the cheap ones (norms, gating), or whole blocks."""
    loss_chunk_tokens: Positive = 512
    """Tokens whose logits are held at once."""


class EvaluationConfig(Section):
    """Held-out loss: token-weighted, over the same rows each time."""

    every: Duration | Literal["never"] = "never"
    """How often to evaluate during training; before the first and after the last step it is always done."""
    max_rows: Positive | None = None
    """Use only the first rows of the held-out text."""
    micro_batch_size: Positive | Literal["auto"] = "auto"
    """Rows in one forward pass; auto takes that of the training."""


class CheckpointConfig(Section):
    """When to save, and what to keep. The last step is always saved."""

    every: Duration | Literal["never"] = "never"
    """How often to save during training."""
    keep: Positive = 2
    """How many of the newest checkpoints of this run to keep."""
    keep_best: bool = False
    """Also keep the one with the lowest held-out loss."""


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
    prompts: list[str] = Field(default=["Gravity is", "def add(a, b):", "今日は天気がいいので、"], min_length=1)
    """Texts whose logits are compared."""


class SampleConfig(Section):
    """A text continued before and after the training."""

    prompt: str
    """The beginning of the text."""
    max_new_tokens: Positive = 40
    """Tokens to add."""


class TensorBoardConfig(Section):
    """Scalars for TensorBoard, beside metrics.jsonl (needs the extra `tensorboard`)."""

    enabled: bool = False
    """Write event files into the run's folder `tensorboard/`."""


class StageTrainingConfig(Section):
    """The sections that steer everything after the data is there."""

    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    training: TrainingConfig
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    export: ExportConfig = ExportConfig()
    proof: ProofConfig = ProofConfig()
    sample: SampleConfig | None = None
    tensorboard: TensorBoardConfig = TensorBoardConfig()

    @model_validator(mode="after")
    def _check_batch(self) -> StageTrainingConfig:
        micro = self.training.micro_batch_size
        if micro != "auto" and self.training.global_batch_size % micro:
            raise ValueError(
                f"training.global_batch_size ({self.training.global_batch_size}) is not a multiple of "
                f"training.micro_batch_size ({micro})"
            )
        return self
