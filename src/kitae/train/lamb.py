"""What LAMB (You et al., 2020) adds to Adam: a trust ratio for each full tensor.

    update = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * w
    w -= rate * |w| / |update| * update

The ratio is for decayed tensors alone, as in the authors' code and in NVIDIA's for BERT: norms' weights and
biases have a ratio of 1. It is bounded from above where the recipe says so, as some implementations do. A
tensor is one of the Hugging Face checkpoint: query, key and value weights, which are one local parameter,
have a ratio each.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

import torch

from kitae.backend.group import Group
from kitae.parallel.layout import ParameterLayout
from kitae.parallel.mesh import Mesh
from kitae.parallel.norms import norm_of
from kitae.parallel.shares import Shares


@torch.no_grad()
def adam_direction(
    gradient: torch.Tensor,
    moments: tuple[torch.Tensor, torch.Tensor],
    *,
    betas: tuple[float, float],
    eps: float,
    updates: int,
) -> None:
    """Bring both moments (fp32) up to update number `updates`; the gradient becomes Adam's direction."""
    first, second = moments
    first.lerp_(gradient, 1 - betas[0])
    second.mul_(betas[1]).addcmul_(gradient, gradient, value=1 - betas[1])
    torch.div(second, 1 - betas[1] ** updates, out=gradient)
    gradient.sqrt_().add_(eps)
    torch.div(first, gradient, out=gradient).div_(1 - betas[0] ** updates)


class TrustRatios:
    """The ratio of norms |weights| / |update| of each decayed full tensor, the same on every rank.

    It is at most `most`. All ranks of the mesh make it together.
    """

    def __init__(
        self, decayed: Collection[str], shares: Shares, mesh: Mesh, most: float | None = None
    ) -> None:
        self._most = math.inf if most is None else most
        self._group: Group = mesh.tensor if shares.group.size == 1 else mesh.world
        self._layouts = {layout.name: layout for layout in shares.layouts if layout.name in decayed}
        own = {piece.tensor for layout in self._layouts.values() for piece in layout.pieces}
        # A rank may have no row of some tensor, but all have to agree on the order.
        names = sorted(set().union(*mesh.control.exchange(own)))
        self._places = {name: place for place, name in enumerate(names)}

    @torch.no_grad()
    def apply(self, weights: Mapping[str, torch.Tensor], updates: Mapping[str, torch.Tensor]) -> None:
        """Multiply the updates (fp32 shares by parameter name) in place; the ratio is 1 where a norm is 0."""
        names = [name for name in updates if name in self._layouts]
        if not self._places or not names:
            return
        device = updates[names[0]].device
        squares = torch.zeros(2, len(self._places), dtype=torch.float32, device=device)
        for name in names:
            parts = zip(self._parts(name, weights[name]), self._parts(name, updates[name]), strict=True)
            for (place, replicas, weight), (_, _, update) in parts:
                squares[0, place] += _square(weight) / replicas
                squares[1, place] += _square(update) / replicas
        weight_norms, update_norms = self._group.all_reduce(squares).sqrt()
        usable = (weight_norms > 0) & (update_norms > 0)
        ratios = torch.where(usable, weight_norms / update_norms, 1.0).clamp(max=self._most)
        for name in names:
            for place, _, update in self._parts(name, updates[name]):
                update.mul_(ratios[place])

    def _parts(self, name: str, tensor: torch.Tensor) -> Iterator[tuple[int, int, torch.Tensor]]:
        """Place among the ratios, number of holders, and view of each piece; padding is zero and stays so."""
        layout = self._layouts[name]
        sizes = _sizes(layout)
        parts = tensor.view(layout.shape).split_with_sizes(sizes, layout.concat_dim)
        for piece, part in zip(layout.pieces, parts, strict=True):
            yield self._places[piece.tensor], piece.replicas, part


def _sizes(layout: ParameterLayout) -> list[int]:
    return [piece.local_shape[layout.concat_dim] for piece in layout.pieces]


def _square(tensor: torch.Tensor) -> torch.Tensor:
    return norm_of(tensor).square()
