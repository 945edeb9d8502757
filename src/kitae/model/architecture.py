"""What kinds of models there are, by the `model_type` of their config.json: one entry each.

All that differs between kinds for the rest of kitae stands here and in `tables`. There, without torch: how a
configuration is read, and which table of parameters follows from it. Here: what is built, and which full
tensors are the embedding and the head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kitae.errors import WeightsError
from kitae.model.decoder import Decoder
from kitae.model.encoder import Encoder
from kitae.model.encoder_config import ARCHITECTURES as ENCODER_CLASSES
from kitae.model.encoder_config import MODEL_TYPE
from kitae.model.encoder_layouts import DECODER, WORDS, encoder_prefix
from kitae.model.encoder_names import is_of_a_head, stored_names, with_pooler_as_stored
from kitae.model.families import FAMILIES
from kitae.model.tables import ModelConfig, parse_config, table_of

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "Model",
    "ModelConfig",
    "architecture_of",
    "parse_config",
    "table_of",
]

Model = Decoder | Encoder
"""Both have `config`, `table`, `layouts`, `region`, `vocabulary`, `recompute`, and parameters in the order of
the layouts; forward passes and heads differ."""


@dataclass(frozen=True)
class Architecture:
    """One kind of model; the functions take configurations of that kind."""

    build: Callable[..., Model]
    """`build(config, tied=, dtype=, device=, region=)`: a model in uninitialised memory."""
    embedding: Callable[[Any], str]
    """The full tensor with a row for each token."""
    head: Callable[[Any], str | None]
    """The full tensor of an untied head over the vocabulary; None where the model has no such head."""
    class_name: Callable[[Any], str]
    """The class of transformers, for `architectures` in config.json."""
    stored_names: Callable[[Any, Iterable[str]], dict[str, str]]
    """Names in a folder by the names that the table has for them."""
    settled: Callable[[Any, Iterable[str]], ModelConfig]
    """The configuration as far as only the names of the tensors tell."""
    left_out: Callable[[str], bool]
    """Whether a tensor that the table does not name may lie in a folder all the same."""
    may_untie: bool
    """Whether the head can be another tensor than the embedding."""


_DECODER = Architecture(
    build=Decoder,
    embedding=lambda config: "model.embed_tokens.weight",
    head=lambda config: "lm_head.weight",
    class_name=lambda config: FAMILIES[config.model_type].architecture,
    stored_names=lambda config, names: {name: name for name in names},
    settled=lambda config, names: config,
    left_out=lambda name: False,
    may_untie=True,
)

_ENCODER = Architecture(
    build=lambda config, tied, **options: Encoder(config, **options),
    embedding=lambda config: encoder_prefix(config) + WORDS,
    head=lambda config: DECODER if config.predicts_tokens else None,
    class_name=lambda config: next(name for name, head in ENCODER_CLASSES.items() if head == config.head),
    stored_names=stored_names,
    settled=with_pooler_as_stored,
    left_out=is_of_a_head,
    may_untie=False,
)

ARCHITECTURES: dict[str, Architecture] = {**dict.fromkeys(FAMILIES, _DECODER), MODEL_TYPE: _ENCODER}
"""By `model_type`."""


def architecture_of(config: Mapping[str, Any] | ModelConfig) -> Architecture:
    """The kind of a config.json, or of one that was read; WeightsError for an unknown one."""
    kind = config.get("model_type") if isinstance(config, Mapping) else config.model_type
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        raise WeightsError(
            f"config.json: model_type: {kind} is not supported; supported: {', '.join(ARCHITECTURES)}"
        )
    return ARCHITECTURES[kind]
