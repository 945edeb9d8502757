"""`--scale-down cpu` at work: what of a recipe is here, what is made in place of the rest, what is told."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kitae.catalog.models import preset_of
from kitae.errors import RecipeError
from kitae.recipe.load import LoadedRecipe, load_recipe
from kitae.recipe.scale_down import Change, Reach, ScaledDown, scale_down
from kitae.recipe.schema import Recipe
from kitae.recipe.sources import ModelConfig, SourceConfig, TokenizerConfig
from kitae.stages.files import read_json, write_json
from kitae.storage.cache import cache_folder

TARGETS = ("cpu",)
RECORD = "scaled-down.json"
"""In the run's folder: what was changed."""


def small_recipe(
    path: Path, changes: Sequence[str], to: str, *, make: bool = True
) -> tuple[ScaledDown, list[str]]:
    """What is changed in a recipe file, and `--set` flags that do it and hold a person's own as well.

    With `make`, what the small recipe reads is made. Raises `RecipeError`.
    """
    from kitae.small.make import make as make_input

    if to not in TARGETS:
        raise RecipeError(f"--scale-down {to}: a recipe can be made small for {' or '.join(TARGETS)}")
    if path.is_dir():
        raise RecipeError(f"--scale-down: {path} is a run already; give the recipe's file")
    loaded, cache = _loaded(path, changes), cache_folder()
    found = scale_down(loaded.recipe, reach_of(loaded.base, cache), changes)
    for one in found.inputs if make else ():
        make_input(cache, one)
    flags = [*found.flags, *changes]
    # A rule that breaks a recipe tells it here, and not in the middle of a stage.
    load_recipe(path, flags)
    return found, flags


def _loaded(path: Path, changes: Sequence[str]) -> LoadedRecipe:
    """The recipe with a person's flags; without them where they only fit the small one."""
    try:
        return load_recipe(path, changes)
    except RecipeError:
        return load_recipe(path)


def run_of(path: Path, flags: Sequence[str]) -> Path:
    """The folder of the small recipe's run."""
    recipe: Recipe = load_recipe(path, flags).recipe
    return Path(recipe.runs) / recipe.name


def keep(run: Path, recipe: Path, changes: Sequence[Change]) -> None:
    """Record in a run what it was scaled down from."""
    values = [{"path": one.path, "before": one.before, "after": one.after, "why": one.why} for one in changes]
    write_json(run / RECORD, {"recipe": str(recipe), "changes": values})


def lines_of(changes: Sequence[Change]) -> list[str]:
    """The changes as a table: what, from, to, why."""
    rows = [(one.path, _shown(one.before), _shown(one.after), one.why) for one in changes]
    widths = [max(len(row[column]) for row in rows) for column in range(2)] if rows else [0, 0]
    return [
        f"  {path:{widths[0]}}  {before:{widths[1]}} -> {after}  ({why})" for path, before, after, why in rows
    ]


def _shown(value: Any) -> str:
    """A value in few words: of a made input, the last part of its path."""
    if isinstance(value, list):
        return ", ".join(_shown(one) for one in value)
    if isinstance(value, dict):
        path = value.get("path") or value.get("folder")
        return "/".join(Path(path).parts[-2:]) if path else ", ".join(str(one) for one in value.values())
    return str(value)


def reach_of(base: Path, cache: Path) -> Reach:
    """What can be reached from here, for a recipe in the folder `base`."""
    from kitae.small.make import place

    return Reach(
        source_bytes=lambda source: _source_bytes(base, source),
        config=lambda model: _config(base, model),
        tokenizer=lambda tokenizer: _has_tokenizer(base, tokenizer),
        place=lambda one: str(place(cache, one)),
    )


def _source_bytes(base: Path, source: SourceConfig) -> int | None:
    if source.path is None:
        return None
    found = [Path(one) for one in glob.iglob(str(base / source.path))]  # noqa: PTH207 - also absolute ones
    files = [file for one in found for file in (one.rglob("*") if one.is_dir() else [one]) if file.is_file()]
    return sum(file.stat().st_size for file in files) if files else None


def _config(base: Path, model: ModelConfig) -> Mapping[str, Any] | None:
    """From the folder, or from the catalogue."""
    if model.folder is not None:
        return read_json(base / model.folder / "config.json") or None
    known = preset_of(model.hub) if model.hub is not None else None
    return known.config if known is not None else None


def _has_tokenizer(base: Path, tokenizer: TokenizerConfig) -> bool:
    """A folder that is there; what lies in a package or on the Hub would have to be fetched."""
    return tokenizer.folder is not None and (base / tokenizer.folder).is_dir()
