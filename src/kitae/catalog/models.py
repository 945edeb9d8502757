"""Model shapes, and pretrained models that arrive in a package."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from kitae.errors import RecipeError
from kitae.suggest import did_you_mean

if sys.version_info >= (3, 11):
    import tomllib
else:  # the same parser, before it came into the standard library
    import tomli as tomllib


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
def _table() -> dict[str, Any]:
    return tomllib.loads(resources.files("kitae.catalog").joinpath("models.toml").read_text(encoding="utf-8"))


@cache
def presets() -> Mapping[str, Preset]:
    """Every model shape by name."""
    entries = _table()["presets"].items()
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
        {name: NamedModel(name=name, **entry) for name, entry in _table()["models"].items()}
    )


def preset(name: str) -> Preset:
    """The model shape `name`; raises `RecipeError` with the nearest names and the list."""
    if name not in presets():
        raise RecipeError(_unknown("preset", name, presets()))
    return presets()[name]


def named_model(name: str) -> NamedModel:
    """The pretrained model `name`; raises `RecipeError` with the nearest names and the list."""
    if name not in named_models():
        raise RecipeError(_unknown("named model", name, named_models()))
    return named_models()[name]


def _unknown(kind: str, name: str, known: Mapping[str, object]) -> str:
    return f"no {kind} is called {name!r}{did_you_mean(name, known)} There are: {', '.join(known)}"
