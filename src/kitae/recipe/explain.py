"""Every value of a recipe, where it came from, and why an automatic one was chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kitae.recipe.base import Section
from kitae.recipe.load import LoadedRecipe, leaves
from kitae.recipe.messages import dotted
from kitae.recipe.model_shape import preset_shape
from kitae.recipe.resolve import Choice, ResolvedRecipe


@dataclass(frozen=True)
class Row:
    """One value of a recipe."""

    path: str
    value: Any
    """Plain: what JSON can hold."""
    origin: str
    """`recipe.yaml:12`, `--set`, `preset llama-10m` or `default`."""
    reason: str
    """Why an automatic value was chosen; empty for a value that was given."""


def explain(loaded: LoadedRecipe, resolved: ResolvedRecipe) -> list[Row]:
    """A row for every value, in the order of the schema."""
    rows: list[Row] = []
    reasons = {choice.path: choice for choice in resolved.choices}
    for path, value in leaves(loaded.recipe):
        name = dotted(path)
        if name.startswith("model.shape") and loaded.recipe.model.preset is not None:
            continue
        rows.extend(_row(name, value, loaded, reasons.get(name)))
        if name == "model.preset" and value is not None:
            rows.extend(_shape_rows(loaded))
    return rows


def _row(name: str, value: Any, loaded: LoadedRecipe, choice: Choice | None) -> list[Row]:
    origin = loaded.origins[name]
    if choice is None:
        return [Row(name, _plain(value), origin, "")]
    reason = f"auto: {choice.reason}"
    if not isinstance(choice.value, Section):
        return [Row(name, _plain(choice.value), origin, reason)]
    return [Row(f"{name}.{dotted(path)}", _plain(one), origin, reason) for path, one in leaves(choice.value)]


def _shape_rows(loaded: LoadedRecipe) -> list[Row]:
    """The sizes of a new model: the preset's with the recipe's changes."""
    rows = []
    for field, value in preset_shape(loaded.recipe.model).items():
        name, by_tokenizer = f"model.shape.{field}", value is None
        reason = "auto: as many rows as the tokenizer has ids" if by_tokenizer else ""
        rows.append(Row(name, "auto" if by_tokenizer else value, loaded.origins.get(name, "default"), reason))
    return rows


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return value if isinstance(value, str | int | float | None) else str(value)
