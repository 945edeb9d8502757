"""Dated facts, kept as TOML beside the code that looks them up. Imports nothing of kitae but its errors."""

from kitae.catalog.models import NamedModel, Preset, named_model, named_models, preset, presets

__all__ = ["NamedModel", "Preset", "named_model", "named_models", "preset", "presets"]
