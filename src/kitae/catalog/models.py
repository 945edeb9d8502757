"""Model shapes, and pretrained models that arrive in a package."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from kitae.catalog.reading import read_table, unknown
from kitae.errors import RecipeError


@dataclass(frozen=True)
class Preset:
    """A model shape: the complete contents of a Hugging Face config.json, without token ids."""

    name: str
    description: str
    date: datetime.date
    """When the entry was made."""
    source: str
    config: Mapping[str, Any]


@dataclass(frozen=True)
class NamedModel:
    """A pretrained model that arrives in a Python package, as one GGUF file with a pinned hash."""

    name: str
    description: str
    date: datetime.date
    source: str
    package: str
    """The distribution that pip installs."""
    version: str
    module: str
    """The import package whose folder holds the file."""
    file: str
    sha256: str
    licence: str
    """SPDX identifier."""


@cache
def presets() -> Mapping[str, Preset]:
    """Every model shape by name."""
    entries = read_table("models")["presets"].items()
    return MappingProxyType(
        {
            name: Preset(name=name, **{**entry, "config": MappingProxyType(entry["config"])})
            for name, entry in entries
        }
    )


@cache
def named_models() -> Mapping[str, NamedModel]:
    """Every pretrained model that arrives in a package, by name."""
    return MappingProxyType(
        {name: NamedModel(name=name, **entry) for name, entry in read_table("models")["models"].items()}
    )


def preset(name: str) -> Preset:
    """The model shape `name`; raises `RecipeError` with the nearest names and the list."""
    if name not in presets():
        raise RecipeError(unknown("preset", name, presets()))
    return presets()[name]


def named_model(name: str) -> NamedModel:
    """The pretrained model `name`; raises `RecipeError` with the nearest names and the list."""
    if name not in named_models():
        raise RecipeError(unknown("named model", name, named_models()))
    return named_models()[name]


def preset_of(hub: str) -> Preset | None:
    """The shape whose sizes a Hub id published; None where the catalogue has none."""
    return next((one for one in presets().values() if one.source.split()[-1] == hub), None)
