"""A recipe file, with `--set` flags, becomes a checked `Recipe` that knows where each value came from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kitae.errors import RecipeError
from kitae.recipe.base import Section
from kitae.recipe.messages import dotted, problems
from kitae.recipe.model_shape import HF_NAMES
from kitae.recipe.overrides import Settings
from kitae.recipe.schema import FORMAT, Recipe
from kitae.recipe.yaml_positions import Document, KeyPath, parse, read_text


@dataclass(frozen=True)
class LoadedRecipe:
    """A checked recipe and where it came from."""

    recipe: Recipe
    origins: Mapping[str, str]
    """Dotted path of every value -> `recipe.yaml:12`, `--set`, `preset llama-10m` or `default`."""
    path: Path
    base: Path
    """Folder of the recipe file, which relative paths in it start from."""
    text_hash: str
    """SHA-256 of the file's text, in hex; flags are not in it."""


def load_recipe(path: Path | str, overrides: Sequence[str] = ()) -> LoadedRecipe:
    """Read a recipe and put `section.key=value` flags over it.

    Raises one `RecipeError` that lists everything that is wrong: file and line (or flag), field and way out.
    """
    path = Path(path)
    text = read_text(path)
    document = parse(text, str(path))
    _check_format(document, path)
    settings = Settings(document)
    for flag in overrides:
        settings.set(flag)
    recipe = _validate(settings, path)
    origins = {dotted(leaf): settings.origin(leaf, path.name) for leaf, _ in leaves(recipe)}
    return LoadedRecipe(
        recipe=recipe,
        origins={**origins, **_preset_origins(recipe, origins)},
        path=path,
        base=path.resolve().parent,
        text_hash=hashlib.sha256(text.encode()).hexdigest(),
    )


def leaves(section: Section, above: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every value of a recipe in the schema's order, with its path; goes down into sections and lists."""
    for name in type(section).model_fields:
        value, path = getattr(section, name), (*above, name)
        if isinstance(value, Section):
            yield from leaves(value, path)
        elif isinstance(value, list) and value and isinstance(value[0], Section):
            for index, entry in enumerate(value):
                yield from leaves(entry, (*path, index))
        else:
            yield path, value


def _check_format(document: Document, path: Path) -> None:
    values = document.value
    if values is None:
        raise RecipeError(
            f"{path}:1: the file is empty; a recipe begins with 'kitae: {FORMAT}' (see docs/recipe.md)"
        )
    if not isinstance(values, dict):
        kind = "a list" if isinstance(values, list) else "a single value"
        raise RecipeError(f"{path}:1: found {kind}; a recipe is a mapping that begins with 'kitae: {FORMAT}'")
    version = values.get("kitae")
    line = document.lines.get(("kitae",), 1)
    if "kitae" not in values:
        raise RecipeError(
            f"{path}:1: kitae: missing; put 'kitae: {FORMAT}', the version of the format, on top"
        )
    if type(version) is int and version > FORMAT:
        raise RecipeError(
            f"{path}:{line}: kitae: the recipe is of format {version}, and this kitae reads {FORMAT}; "
            "install a newer kitae"
        )
    if type(version) is not int or version < FORMAT:
        raise RecipeError(
            f"{path}:{line}: kitae: found {version!r}; write 'kitae: {FORMAT}', the version of the format"
        )


def _validate(settings: Settings, path: Path) -> Recipe:
    try:
        # Through JSON: only from there does pydantic's strict mode take a list for a tuple.
        return Recipe.model_validate_json(json.dumps(settings.values), strict=True)
    except ValidationError as error:
        found = problems(error, settings.values)
        raise RecipeError(listing([(settings, path, *problem) for problem in found])) from None


def listing(found: list[tuple[Settings, Path, KeyPath, str]]) -> str:
    """One message of all that is wrong, in the file's order, each with its place."""
    order = sorted(found, key=lambda item: item[0].lines.get(item[2], 0))
    lines = [
        f"{settings.place(where, str(path))}: {dotted(where)}: {what}"
        for settings, path, where, what in order
    ]
    return lines[0] if len(lines) == 1 else "\n  ".join([f"{len(lines)} things are wrong:", *lines])


def _preset_origins(recipe: Recipe, origins: Mapping[str, str]) -> dict[str, str]:
    """Origins of the sizes that the preset gives."""
    if recipe.model.preset is None:
        return {}
    shape = recipe.model.shape
    given = shape.model_dump(exclude_none=True) if shape is not None else {}
    paths = (f"model.shape.{field}" for field in HF_NAMES if field not in given and field != "vocab_size")
    return dict.fromkeys(paths, f"preset {recipe.model.preset}")
