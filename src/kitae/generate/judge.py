"""How likely given tokens are: sums over the tokens alone, so that no batch size counts.

T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from kitae.generate.cache import static_length
from kitae.generate.decoding import left_padded
from kitae.generate.network import Network

BATCH_TOKENS = 2048
"""Tokens that run together, padding included, or one piece."""
LOGITS_TOKENS = 256
"""Of how many tokens there are logits at once."""
SORTED_PIECES = 512
"""How many pieces are sorted by length together."""


@dataclass(frozen=True)
class Piece:
    """Tokens of which the last ones are judged, each by all before it."""

    ids: Sequence[int]
    judged: int
    """How many; fewer than all, for the first has nothing before it."""


@dataclass(frozen=True)
class Judged:
    """What a model makes of a piece."""

    nats: float
    """Sum of the losses of its judged tokens."""
    tokens: int
    greedy: bool
    """Whether each of them is the likeliest one."""


@torch.no_grad()
def judge(
    network: Network, pieces: Iterable[Piece], check: Callable[[], None] = lambda: None
) -> Iterator[Judged]:
    """Judge pieces, in their order, with those of similar lengths in one batch.

    `check` is called before each batch and may raise.
    """
    stream = iter(pieces)
    while some := list(islice(stream, SORTED_PIECES)):
        found: dict[int, Judged] = {}
        for places in _batches(some):
            check()
            found.update(zip(places, _batch(network, [some[place] for place in places]), strict=True))
        yield from (found[place] for place in range(len(some)))


def _batches(pieces: Sequence[Piece]) -> Iterator[list[int]]:
    """Places of pieces, the longest first, as many as fit."""
    order = sorted(range(len(pieces)), key=lambda place: -len(pieces[place].ids))
    first = 0
    while first < len(order):
        count = max(1, BATCH_TOKENS // static_length(len(pieces[order[first]].ids)))
        yield order[first : first + count]
        first += count


def _batch(network: Network, pieces: Sequence[Piece]) -> list[Judged]:
    """The last token of a piece is only a target, and is not run."""
    inputs = [piece.ids[:-1] for piece in pieces]
    length = static_length(max(map(len, inputs)))
    pads = torch.tensor([length - len(one) for one in inputs], device=network.device)
    slots = torch.arange(length, device=network.device)
    ids = left_padded(inputs, length).to(network.device)
    cache = network.cache(len(pieces), length)
    hidden = network.hidden(ids, network.step(slots, pads, length), cache).view(*ids.shape, -1)
    targets = left_padded([piece.ids[1:] for piece in pieces], length).to(network.device)
    counts = [piece.judged for piece in pieces]
    nats, hits = _scores(
        network,
        torch.cat([hidden[row, -count:] for row, count in enumerate(counts)]),
        torch.cat([targets[row, -count:] for row, count in enumerate(counts)]),
    )
    return [
        Judged(float(losses.sum()), len(losses), bool(likeliest.all()))
        for losses, likeliest in zip(torch.split(nats, counts), torch.split(hits, counts), strict=True)
    ]


def _scores(
    network: Network, hidden: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of each target [T], fp64, and whether it is the likeliest token."""
    nats, hits = [], []
    for states, wanted in zip(
        torch.split(hidden, LOGITS_TOKENS), torch.split(targets, LOGITS_TOKENS), strict=True
    ):
        logits = network.logits(states)
        nats.append(torch.nn.functional.cross_entropy(logits, wanted, reduction="none").double())
        hits.append(logits.argmax(-1) == wanted)
    return torch.cat(nats).cpu(), torch.cat(hits).cpu()


def pieces_of(ids: Sequence[int], length: int) -> Iterator[Piece]:
    """A document as pieces of at most `length` inputs, so that all its tokens but the first are judged once.

    Each piece begins with the last token of the one before.
    """
    for first in range(0, max(0, len(ids) - 1), length):
        part = ids[first : first + length + 1]
        yield Piece(part, len(part) - 1)
