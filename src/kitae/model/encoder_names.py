"""The names that BERT's tensors have in folders of all ages, as those that the encoder's layout declares."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from kitae.model.encoder_config import EncoderConfig
from kitae.model.encoder_layouts import DECODER_BIAS, POOLER, PREFIX, encoder_prefix

_OWN = ("embeddings.", "encoder.", "pooler.")
"""What the names of a BertModel's tensors begin with."""
_OLD = {".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"}
_SECOND_BIAS = "cls.predictions.decoder.bias"
"""The bias of the head over the vocabulary, which older versions of transformers wrote twice."""
_HEADS = re.compile(r"(bert\.)?pooler\.|cls\.|classifier\.")


def stored_names(config: EncoderConfig, stored: Iterable[str]) -> dict[str, str]:
    """The stored names by the names that the encoder's layout has for them; each is there once."""
    names = {_canonical(name, encoder_prefix(config)): name for name in stored if name != _SECOND_BIAS}
    if _SECOND_BIAS in stored:
        names.setdefault(DECODER_BIAS, _SECOND_BIAS)
    return names


def is_of_a_head(name: str) -> bool:
    """Whether a tensor is the pooler's or a head's, which a model of another kind does without."""
    return _HEADS.match(name) is not None


def with_pooler_as_stored(config: EncoderConfig, names: Iterable[str]) -> EncoderConfig:
    """The configuration of a bare encoder with a pooler only where its tensors hold one."""
    return replace(config, pooler=POOLER in names) if config.head == "none" else config


def _canonical(name: str, prefix: str) -> str:
    for old, new in _OLD.items():
        if name.endswith(old):
            name = name.removesuffix(old) + new
    bare = name.removeprefix(PREFIX)
    return prefix + bare if bare.startswith(_OWN) else name
