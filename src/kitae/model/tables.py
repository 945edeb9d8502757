"""Which configuration and which parameter table a config.json means, by its `model_type`; without torch.

`architecture` adds what builds the models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kitae.errors import WeightsError
from kitae.model.config import DecoderConfig
from kitae.model.encoder_config import MODEL_TYPE, EncoderConfig
from kitae.model.encoder_layouts import encoder_layouts
from kitae.model.families import FAMILIES
from kitae.model.layouts import decoder_layouts
from kitae.parallel.layout import LayoutTable

ModelConfig = DecoderConfig | EncoderConfig


@dataclass(frozen=True)
class Kind:
    """One kind of model; the functions take configurations of that kind."""

    parse: Callable[[Mapping[str, Any]], ModelConfig]
    """Reads a config.json; WeightsError names what is missing, wrong or unsupported."""
    table: Callable[[Any, bool], LayoutTable]
    """`table(config, tied)`: what each tensor-parallel rank holds."""


DECODER = Kind(DecoderConfig.from_hf, decoder_layouts)
ENCODER = Kind(EncoderConfig.from_hf, lambda config, tied: encoder_layouts(config))
KINDS: dict[str, Kind] = {**dict.fromkeys(FAMILIES, DECODER), MODEL_TYPE: ENCODER}
"""By `model_type`."""


def kind_of(config: Mapping[str, Any] | ModelConfig) -> str:
    """The `model_type` of a config.json, or of one that was read; WeightsError for an unknown one."""
    kind = config.get("model_type") if isinstance(config, Mapping) else config.model_type
    if not isinstance(kind, str) or kind not in KINDS:
        raise WeightsError(f"config.json: model_type: {kind} is not supported; supported: {', '.join(KINDS)}")
    return kind


def parse_config(config: Mapping[str, Any]) -> ModelConfig:
    """Read a config.json of any kind; WeightsError names what is missing, wrong or unsupported."""
    return KINDS[kind_of(config)].parse(config)


def table_of(config: Mapping[str, Any] | ModelConfig, tied: bool) -> LayoutTable:
    """The parameter table that follows from a configuration of any kind."""
    parsed = parse_config(config) if isinstance(config, Mapping) else config
    return KINDS[kind_of(parsed)].table(parsed, tied)
