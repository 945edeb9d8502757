"""Dated facts, kept as TOML beside the code that looks them up. Imports nothing of kitae but its errors."""

from kitae.catalog.instances import Instance, Price, instance, instances, price_of, prices
from kitae.catalog.models import NamedModel, Preset, named_model, named_models, preset, presets

__all__ = [
    "Instance",
    "NamedModel",
    "Preset",
    "Price",
    "instance",
    "instances",
    "named_model",
    "named_models",
    "preset",
    "presets",
    "price_of",
    "prices",
]
