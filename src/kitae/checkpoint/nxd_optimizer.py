"""The optimizer state of a neuronx-distributed (NxD) training checkpoint, as sources of full tensors."""

from __future__ import annotations

import torch

from kitae.checkpoint.coverage import listed
from kitae.checkpoint.gathered import GatheredSource, Holding
from kitae.checkpoint.nxd import NxdSource
from kitae.checkpoint.nxd_folder import OPTIMIZER, NxdFolder, Rank, require_grid, stored_ranks
from kitae.checkpoint.nxd_moments import MASTERS, MOMENTS, WEIGHTS_ALONE, RankMoments, rank_moments, same
from kitae.checkpoint.torch_archive import WAY_OUT
from kitae.errors import WeightsError
from kitae.parallel.layout import Box

__all__ = ["MASTERS", "MOMENTS", "NxdOptimizer"]

_COMPARED_ROWS = 64


class NxdOptimizer:
    """The moments, and the fp32 masters where they were saved, that belong to the weights of a checkpoint.

    WeightsError when there is no optimizer state, or when it does not fit the weights.
    """

    def __init__(self, weights: NxdSource) -> None:
        found, ranks = weights.found, sorted(weights.states)
        held = _moments(weights)
        self.step: int = same("the number of updates", {f"rank ({r})": held[r].step for r in ranks})
        """Optimizer updates done."""
        self.sources: dict[str, GatheredSource] = {
            kind: GatheredSource(
                (Holding(str(rank), held[rank].kinds[kind], weights.layouts[rank]) for rank in ranks),
                weights.names,
            )
            for kind in held[ranks[0]].kinds
        }
        """`exp_avg`, `exp_avg_sq`, and `weights` where masters were saved."""
        self.notes = [f"optimizer state of {_dp_size(found)} data-parallel ranks after {self.step} updates"]
        if found.step not in (None, self.step):
            self.notes.append(
                f"{found.folder.name} was saved when the optimizer had done {self.step} updates"
            )
        if MASTERS in self.sources:
            self._check_masters(weights)

    def check_replicas(self) -> None:
        """Raise WeightsError where ranks hold the same part of a moment, or a master, with other bits."""
        for source in self.sources.values():
            source.check_replicas()

    def _check_masters(self, weights: NxdSource) -> None:
        """Only masters can prove that numbers were given the right names: rounded, they are the weights."""
        wrong = [name for name in weights.tensors() if not self._rounds_to(weights, name)]
        if wrong:
            raise WeightsError(
                f"{weights.found.folder}: the fp32 masters of {len(wrong)} tensors do not round to their "
                f"weights ({listed(wrong)}), so the parameters are in an order that kitae does not know; "
                f"{WEIGHTS_ALONE}"
            )

    def _rounds_to(self, weights: NxdSource, name: str) -> bool:
        info = weights.tensors()[name]
        box = Box((0,) * len(info.shape), (min(_COMPARED_ROWS, info.shape[0]), *info.shape[1:]))
        master = self.sources[MASTERS].read(name, box)
        return torch.equal(master.to(info.dtype), weights.read(name, box))


def _moments(weights: NxdSource) -> dict[Rank, RankMoments]:
    found = weights.found
    if not found.optimizer:
        raise WeightsError(
            f"{found.folder} holds no optimizer state: there are no rank files in {OPTIMIZER}/; "
            f"{WEIGHTS_ALONE}"
        )
    require_grid(next(iter(found.optimizer.values())).parent, found.optimizer)
    if {(rank.tp, rank.pp) for rank in found.optimizer} != {(rank.tp, rank.pp) for rank in found.model}:
        raise WeightsError(
            f"{found.folder}: optimizer files are of ranks {stored_ranks(found.optimizer)}, those of the "
            f"model of {stored_ranks(found.model)}; {WAY_OUT}"
        )
    return {
        rank: rank_moments(
            [found.optimizer[Rank(rank.pp, rank.tp, dp)] for dp in range(_dp_size(found))], state
        )
        for rank, state in weights.states.items()
    }


def _dp_size(found: NxdFolder) -> int:
    return 1 + max(rank.dp for rank in found.optimizer)
