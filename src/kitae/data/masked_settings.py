"""What the recipe and the tokenizer say of masked rows."""

from __future__ import annotations

from typing import Any

from kitae.data.masking import Hiding
from kitae.data.preparation import Job
from kitae.data.word_tokenizer import WordTokenizer
from kitae.recipe.masking import MaskingConfig
from kitae.recipe.sources import DataConfig


def masking_of(config: DataConfig) -> MaskingConfig:
    """The recipe's section, or its defaults."""
    return config.masking or MaskingConfig()


def hiding_of(job: Job, *, dynamic: bool) -> Hiding:
    """How tokens are hidden in the rows of a job; raises `DataError` for a tokenizer without a mask token."""
    masking, tokenizer = masking_of(job.config), job.tokenizer
    (mask_id,) = tokenizer.special.need("mask")
    return Hiding(
        probability=masking.probability,
        replace=masking.replace,
        random=masking.random,
        max_predictions=masking.predictions(job.config.sequence_length),
        dynamic=dynamic,
        seed=job.seed,
        vocab_size=tokenizer.vocab_size,
        mask_id=mask_id,
        special_ids=tuple(sorted(tokenizer.special.all)),
    )


def described(tokenizer: WordTokenizer) -> dict[str, Any]:
    """What the card says of a tokenizer: its special tokens, and the dictionary if one cuts its words."""
    special = tokenizer.special
    roles = {role: getattr(special, role) for role in ("cls", "sep", "pad", "mask", "unk")}
    named = {role: [token, tokenizer.token(token)] for role, token in roles.items() if token is not None}
    dictionary = getattr(tokenizer, "dictionary", None)
    cutter = {} if dictionary is None else {"dictionary": dictionary.name}
    return {"special_tokens": named, **cutter}
