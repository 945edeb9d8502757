"""Dated facts, kept as TOML beside the code that looks them up. It imports errors and storage alone."""

from kitae.catalog.instances import Instance, Item, instance, instances, items, price_of, prices
from kitae.catalog.models import NamedModel, Preset, named_model, named_models, preset, presets
from kitae.catalog.refreshed import Price

__all__ = [
    "Instance",
    "Item",
    "NamedModel",
    "Preset",
    "Price",
    "instance",
    "instances",
    "items",
    "named_model",
    "named_models",
    "preset",
    "presets",
    "price_of",
    "prices",
]
