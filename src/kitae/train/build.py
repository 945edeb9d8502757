"""Puts the parts of an update together, as the recipe says."""

from __future__ import annotations

import torch

from kitae.backend.group import ALONE
from kitae.parallel.data_parallel import DataParallel
from kitae.parallel.shares import Shares
from kitae.train.job import TrainJob
from kitae.train.optimizer import OPTIMIZERS
from kitae.train.precision import PRECISIONS
from kitae.train.step import Stepper

WIRE_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""What gradients travel in, by `parallel.reduce_dtype`."""


def build_stepper(job: TrainJob) -> Stepper:
    """Turn the job's decoder into what the precision needs and give it an optimizer; `job` is resolved."""
    recipe, mesh, decoder = job.recipe, job.mesh, job.decoder
    shares = Shares(decoder.layouts, mesh.data if recipe.parallel.zero1 else ALONE)
    weights = PRECISIONS[recipe.training.precision](decoder, shares)
    decoder.recompute = recipe.training.recompute
    replicas = DataParallel(
        dict(decoder.named_parameters()),
        shares,
        mesh.data,
        wire_dtype=WIRE_DTYPES[recipe.parallel.reduce_dtype],
        bucket_bytes=recipe.parallel.bucket_bytes,
        release=weights.release,
    )
    if mesh.data.size > 1:
        weights.on_sum = replicas.ready
    optimizer = OPTIMIZERS[recipe.optimizer.name](
        weights,
        {layout.name for layout in decoder.layouts if layout.decay},
        recipe.optimizer,
        fused=job.backend.fused_optimizer,
        seed=recipe.seed,
        shares=shares,
        mesh=mesh,
    )
    return Stepper(
        model=decoder,
        weights=weights,
        optimizer=optimizer,
        backend=job.backend,
        shares=shares,
        mesh=mesh,
        replicas=replicas,
        sequence_parallel=recipe.parallel.sequence_parallel,
        max_grad_norm=recipe.optimizer.max_grad_norm,
        chunk_tokens=recipe.training.loss_chunk_tokens,
    )
