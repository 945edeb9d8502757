"""Updates of small models with random weights on random rows: a training in small, without files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd import backward

from kitae.backend.group import ALONE
from kitae.backend.table import select
from kitae.data.examples import Sample
from kitae.data.labelled_rows import LabelledRows
from kitae.data.masked_rows import MaskedRows
from kitae.data.rows import Rows
from kitae.model.architecture import architecture_of
from kitae.model.dropout import Draws
from kitae.model.init import initialise
from kitae.parallel.data_parallel import DataParallel
from kitae.parallel.gradients import global_norm
from kitae.parallel.mesh import Mesh
from kitae.parallel.region import region_of
from kitae.parallel.shares import Shares
from kitae.plan.work import Work
from kitae.recipe.training import OptimizerConfig
from kitae.train.batch import GlobalBatch, global_batch
from kitae.train.build import OBJECTIVES
from kitae.train.optimizer import OPTIMIZERS, clip
from kitae.train.precision import PRECISIONS
from kitae.train.step import Stepper


class RandomRows:
    """Rows of random tokens for any objective."""

    def __init__(self, work: Work) -> None:
        self.work, self.sequence_length = work, work.length

    def __len__(self) -> int:
        return self.work.global_rows

    def read(self, samples: Sequence[Sample]) -> Any:
        """So many rows, always the same."""
        work, count = self.work, len(samples)
        ids = np.random.default_rng(0).integers(5, work.config.vocab_size, (count, work.length))
        if work.objective == "causal-lm":
            positions = np.tile(np.arange(work.length), (count, 1))
            segments = np.ones_like(ids)
            segments[:, work.length // 2 :] += work.document_mask
            return Rows(ids, ids, positions, segments)
        lengths, zeros = np.full(count, work.length), np.zeros_like(ids)
        if work.objective == "classification":
            return LabelledRows(ids, zeros, lengths, np.zeros(count, np.int64))
        places = np.tile(np.arange(work.predictions), (count, 1))
        return MaskedRows(ids, zeros, lengths, places, ids[:, : work.predictions], np.zeros(count, np.int64))


class Trial:
    """A model in the making, for whole updates or the stretches of one."""

    def __init__(self, work: Work, mesh: Mesh | None = None) -> None:
        self._rows, self._work, self._step = RandomRows(work), work, 0
        self._samples = [Sample(number) for number in range(work.global_rows)]
        self._stepper = _stepper(work, mesh or Mesh())
        self._gradients: dict[str, torch.Tensor] = {}

    def update(self) -> None:
        """Make one more update."""
        self._step += 1
        self._stepper.update(self._batch(), 1e-3, step=self._step)

    def body(self) -> None:
        """Go forward and backward through the model without a loss, for the first micro-batch."""
        stepper, part = self._stepper, self._batch().micro_batches[0]
        model, weights = stepper.objective.model, stepper.weights
        weights.clear_gradients()
        with weights.forward_context():
            if self._work.is_decoder:
                hidden = model(part.input_ids, part.position_ids, part.segment_ids)
            else:
                hidden = part.hidden(model, Draws(0, 1, part.places))
        backward(hidden, torch.ones_like(hidden))

    def finish(self) -> None:
        """Norm, clipping and optimizer, on gradients that are there."""
        stepper = self._stepper
        if not self._gradients:
            self._gradients = dict(stepper.gradients(self._batch()).of_rows)
        norm = global_norm(self._gradients, stepper.shares.layouts, stepper.mesh, sharded=False)
        clip(list(self._gradients.values()), float(norm), 1.0)
        stepper.optimizer.step(1e-3, self._gradients)
        stepper.publish()

    def _batch(self) -> GlobalBatch[Any]:
        device, tensors = self._stepper.backend.device, self._stepper.objective.tensors
        mesh = self._stepper.mesh
        return global_batch(self._rows, self._samples, self._work.rows, device, mesh, tensors)


def _stepper(work: Work, mesh: Mesh) -> Stepper:
    region = region_of(mesh.tensor, work.sequence_parallel)
    model: Any = architecture_of(work.config).build(
        work.config, tied=work.tied, dtype=torch.float32, device="cpu", region=region
    )
    initialise(dict(model.named_parameters()), model.layouts, seed=0, std=0.02)
    shares = Shares(model.layouts, mesh.data if work.zero1 else ALONE)
    weights = PRECISIONS[work.precision](model, shares)
    model.recompute = work.recompute
    replicas = DataParallel(
        dict(model.named_parameters()),
        shares,
        mesh.data,
        wire_dtype=torch.float32,
        bucket_bytes=work.bucket_bytes,
        release=weights.release,
    )
    if mesh.data.size > 1:
        weights.on_sum = replicas.ready
    decayed = {one.name for one in model.layouts if one.decay}
    config = OptimizerConfig.model_validate({"name": work.optimizer})
    return Stepper(
        objective=OBJECTIVES[work.objective](model, seed=0, chunk_tokens=work.chunk_tokens),
        weights=weights,
        optimizer=OPTIMIZERS[work.optimizer](
            weights, decayed, config, fused=True, seed=0, shares=shares, mesh=mesh
        ),
        backend=select("cpu"),
        shares=shares,
        mesh=mesh,
        replicas=replicas,
        sequence_parallel=work.sequence_parallel,
        max_grad_norm=1.0,
    )
