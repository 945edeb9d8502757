"""Asks for the attention that a training's rows and precision allow on its machine, and tells which it is."""

from __future__ import annotations

from typing import Any

from kitae.backend.base import Backend
from kitae.backend.stack import stack_here
from kitae.model.decoder import Decoder
from kitae.model.neuron_attention import Asked, Choice, choose_attention
from kitae.recipe.schema import Recipe


def settle_attention(model: Any, backend: Backend, recipe: Recipe) -> str | None:
    """Give a decoder the attention that its recipe asks for; what to tell, None where there is one only.

    Raises `RecipeError` where the recipe wants a kernel that cannot be.
    """
    choice = attention_of(model, backend, recipe)
    if isinstance(model, Decoder):
        model.kernel = None if choice is None else choice.kernel
    return None if choice is None else str(choice)


def attention_record(model: Any, backend: Backend, recipe: Recipe) -> dict[str, str]:
    """What the first line of metrics says of it; nothing where there was nothing to choose."""
    choice = attention_of(model, backend, recipe)
    return {} if choice is None else {"attention": choice.kind, "attention_reason": choice.reason}


def attention_of(model: Any, backend: Backend, recipe: Recipe) -> Choice | None:
    """The choice for a model on this machine."""
    training, data, config = recipe.training, recipe.data, model.config
    causal = isinstance(model, Decoder)
    asked = Asked(
        length=data.sequence_length,
        head_size=config.head_dim if causal else 0,
        windows=frozenset(config.windows) if causal else frozenset({None}),
        precision=training.precision,
        document_mask=data.document_mask,
        causal=causal,
    )
    return choose_attention(training.attention, stack_here(backend.name), asked)
