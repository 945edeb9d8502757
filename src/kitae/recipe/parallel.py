"""How a training is spread over devices. Only keep_global_batch lets it change what is learned."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kitae.recipe.base import Positive, Section


class ParallelConfig(Section):
    """The processes of a training, one a device: data_parallel_size x tensor_parallel_size."""

    tensor_parallel_size: Positive = 1
    """Processes that share one copy of the model: each holds a part of every matrix."""
    data_parallel_size: Positive | Literal["auto"] = "auto"
    """Copies of the model, each training on other rows; auto: as many as there are devices, 1 on a CPU."""
    keep_global_batch: bool = True
    """training.global_batch_size is that of all copies together; false: of each copy, so that more of them
    make larger updates, and fewer to an epoch."""
    sequence_parallel: bool = False
    """Also share out what tensor parallelism leaves whole: norms and sums, by token; saves activations."""
    zero1: bool | Literal["auto"] = "auto"
    """Cut optimizer state and master weights over the copies (ZeRO-1); auto: when there are several."""
    reduce_dtype: Literal["fp32", "bf16"] = "fp32"
    """What gradients travel in between the copies; sums are fp32 either way."""
    bucket_bytes: Annotated[int, Field(ge=1 << 10)] = 64 << 20
    """Bytes of gradients that travel together."""
    timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """Seconds without any progress after which the process that the others wait for is named and all end."""
