"""Continue a prompt token by token, with keys and values kept in buffers of fixed size."""

from __future__ import annotations

from collections.abc import Collection

import torch

from kitae.errors import DataError, RecipeError
from kitae.generate.sampling import Sampler
from kitae.model.cache import KVCache
from kitae.model.decoder import Decoder


@torch.inference_mode()
def generate(
    model: Decoder,
    prompt_ids: list[int],
    max_new_tokens: int,
    *,
    eos_ids: Collection[int],
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
) -> list[int]:
    """The ids that follow the prompt, without it: up to `max_new_tokens`, or up to and with one of `eos_ids`.

    Greedy at temperature 0. DataError for a prompt that is empty or does not fit the vocabulary, RecipeError
    for sampling values that mean nothing.
    """
    sampler = Sampler(temperature, top_k, top_p, seed)
    _check(model, prompt_ids, max_new_tokens)
    embedding = model.embed.weight
    cache = KVCache(model.config, 1, len(prompt_ids) + max_new_tokens, embedding.dtype, embedding.device)
    generated: list[int] = []
    fresh = prompt_ids
    while len(generated) < max_new_tokens and not (generated and generated[-1] in eos_ids):
        generated.append(sampler.choose(_next_logits(model, fresh, cache), len(generated)))
        fresh = generated[-1:]
    return generated


def _next_logits(model: Decoder, fresh: list[int], cache: KVCache) -> torch.Tensor:
    """Logits [V] of the token after `fresh`, whose keys and values join the cache."""
    ids = torch.tensor([fresh], device=cache.keys.device)
    hidden = model(ids, cache.slots(len(fresh))[None], cache=cache)
    return model.logits(hidden[0, -1])


def _check(model: Decoder, prompt_ids: list[int], max_new_tokens: int) -> None:
    if max_new_tokens < 1:
        raise RecipeError(f"max_new_tokens: {max_new_tokens} where it must be a whole number above 0")
    if not prompt_ids:
        raise DataError(
            "the prompt has no tokens; give at least one character, or a tokenizer that adds a BOS"
        )
    if (wrong := max(prompt_ids)) >= model.config.vocab_size or (wrong := min(prompt_ids)) < 0:
        raise DataError(
            f"the prompt has token id {wrong}, but the model has rows 0 to {model.config.vocab_size - 1}; "
            "use the tokenizer that belongs to the model"
        )
