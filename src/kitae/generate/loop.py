"""Continue prompts token by token.

B rows: every prompt as many times as there are samples of it. V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from kitae.errors import DataError, RecipeError, WeightsError
from kitae.generate.decoding import CHUNK, Decoding
from kitae.generate.network import Network
from kitae.generate.sampling import NEVER, Sampler
from kitae.generate.weights import live_weights
from kitae.model.config import DecoderConfig
from kitae.model.decoder import Decoder

Ended = Literal["eos", "stop", "length", "context"]
"""At an end token, at a text that was asked for, with all tokens asked for, at the model's last position."""
Taken = Callable[[int, int], bool]
"""`taken(row, token)` is told each new token; whether the row ends with it, at a text that was asked for."""


@dataclass(frozen=True)
class Wish:
    """What is to be generated."""

    max_new_tokens: int
    eos_ids: Collection[int] = ()
    sampler: Sampler = field(default_factory=Sampler)
    samples: int = 1
    """Of each prompt."""
    known: torch.Tensor | None = None
    """bool [V]: which ids have a token; None where all have."""
    chunk: int = CHUNK

    def __post_init__(self) -> None:
        for name, value in (("max_new_tokens", self.max_new_tokens), ("num", self.samples)):
            if value < 1:
                raise RecipeError(f"{name}: {value} where it must be a whole number above 0")


@dataclass
class Continuation:
    """What follows a prompt."""

    ids: list[int] = field(default_factory=list)
    """With the end token, where there is one."""
    ended: Ended | None = None
    """None while it goes on."""


@torch.no_grad()
def continue_prompts(
    network: Network,
    prompts: Sequence[Sequence[int]],
    wish: Wish,
    *,
    taken: Taken = lambda row, token: False,
    check: Callable[[], None] = lambda: None,
) -> list[Continuation]:
    """What follows each prompt: row p * samples + s is sample s of prompt p.

    `check` is called before each forward pass and may raise. Raises DataError for a prompt that is empty,
    does not fit the vocabulary or leaves no room in the context, WeightsError where logits are NaN.
    """
    for prompt in prompts:
        check_prompt(network.config, prompt)
    room = [network.config.max_position_embeddings - len(one) for one in prompts]
    decoding = Decoding(network, prompts, min(wish.max_new_tokens, max(room)), wish.chunk)
    rows = _Rows(network, prompts, wish, [r for r in room for _ in range(wish.samples)], taken)
    check()
    logits = decoding.prefill()
    if wish.samples > 1:
        decoding.take([row for row in range(len(prompts)) for _ in range(wish.samples)])
        logits = logits.repeat_interleave(wish.samples, 0)
    while True:
        ids = rows.take(logits)
        if all(one.ended for one in rows.found):
            return rows.found
        check()
        if (kept := rows.kept()) is not None:
            decoding.take(kept)
            ids = ids[kept]
        logits = decoding.step(ids)


class _Rows:
    """The rows' tokens, and which rows have ended; those are computed until they are half of all."""

    def __init__(
        self,
        network: Network,
        prompts: Sequence[Sequence[int]],
        wish: Wish,
        room: Sequence[int],
        taken: Taken,
    ) -> None:
        self.found = [Continuation() for _ in room]
        self._wish, self._room, self._taken = wish, room, taken
        self._computed = list(range(len(room)))
        """Which rows there are logits of."""
        self._never = None if wish.known is None else ~wish.known.to(network.device)
        self._seen: torch.Tensor | None = None
        if wish.sampler.repetition_penalty != 1:
            self._seen = _seen(prompts, wish.samples, network.config.vocab_size).to(network.device)

    def take(self, logits: torch.Tensor) -> torch.Tensor:
        """Choose the next token of each row from its logits [B, V]: ids [B]."""
        if self._never is not None:
            logits = logits.masked_fill(self._never, NEVER)
        if logits.amax(-1).isnan().any():
            raise WeightsError(
                "the model gives NaN where likelihoods should be: its weights are broken (a training that "
                "diverged?), or too large for this --dtype"
            )
        number = len(max((one.ids for one in self.found), key=len))
        samples = [row % self._wish.samples for row in self._computed]
        ids = self._wish.sampler.choose(logits, number, samples, self._seen)
        if self._seen is not None:
            self._seen.scatter_(1, ids[:, None], True)
        for row, token in zip(self._computed, ids.tolist(), strict=True):
            if self.found[row].ended is None:
                self._add(row, token)
        return ids

    def kept(self) -> list[int] | None:
        """Places of the rows to go on with, where at most half have not ended; None: all.

        Their number is halved and halved again, so that a batch has few shapes; rows that have ended fill up.
        """
        order = sorted(
            range(len(self._computed)), key=lambda place: self.found[self._computed[place]].ended is not None
        )
        live = sum(self.found[row].ended is None for row in self._computed)
        count = len(order)
        while count // 2 >= live > 0:
            count //= 2
        if count == len(order):
            return None
        kept = order[:count]
        self._computed = [self._computed[place] for place in kept]
        self._seen = None if self._seen is None else self._seen[kept]
        return kept

    def _add(self, row: int, token: int) -> None:
        one = self.found[row]
        one.ids.append(token)
        stopped = self._taken(row, token)
        if token in self._wish.eos_ids:
            one.ended = "eos"
        elif stopped:
            one.ended = "stop"
        elif len(one.ids) >= self._wish.max_new_tokens:
            one.ended = "length"
        elif len(one.ids) >= self._room[row]:
            one.ended = "context"


def _seen(prompts: Sequence[Sequence[int]], samples: int, vocabulary: int) -> torch.Tensor:
    """What the rows have, bool [B, V]; padding is nothing."""
    seen = torch.zeros(len(prompts), vocabulary, dtype=torch.bool)
    for place, prompt in enumerate(prompts):
        seen[place, torch.tensor(list(prompt))] = True
    return seen.repeat_interleave(samples, 0)


def check_prompt(config: DecoderConfig, prompt: Sequence[int]) -> None:
    """Raise DataError for a prompt that the model cannot begin with."""
    if not prompt:
        raise DataError(
            "the prompt has no tokens; give at least one character, or a tokenizer that adds a BOS"
        )
    if (wrong := max(prompt)) >= config.vocab_size or (wrong := min(prompt)) < 0:
        raise DataError(
            f"the prompt has token id {wrong}, but the model has rows 0 to {config.vocab_size - 1}; "
            "use the tokenizer that belongs to the model"
        )
    if len(prompt) >= config.max_position_embeddings:
        raise DataError(
            f"the prompt has {len(prompt):,} tokens, and the model has {config.max_position_embeddings:,} "
            "positions (max_position_embeddings), one of them for a new token at least; shorten it"
        )


def generate(
    model: Decoder,
    prompt_ids: Sequence[int],
    max_new_tokens: int,
    *,
    eos_ids: Collection[int] = (),
    **draw: Any,
) -> list[int]:
    """The ids that follow a prompt, by a model that trains; `draw` are fields of `Sampler`.

    Up to `max_new_tokens`, or up to and with one of `eos_ids`. Raises as `continue_prompts` does.
    """
    wish = Wish(max_new_tokens, eos_ids, Sampler(**draw))
    embedding = model.embed.weight
    network = Network(
        model.config,
        live_weights(dict(model.named_parameters())),
        tied=model.tied,
        dtype=embedding.dtype,
        region=model.region,
    )
    return continue_prompts(network, [prompt_ids], wish)[0].ids
