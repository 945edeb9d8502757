"""`--scale-down cpu`: changes that make of any recipe one that runs here in minutes, each with its reason.

A pure function of the recipe and of what can be reached from here. Objective, precision, optimizer, phases,
formats and how ranks share the work stay; sizes, lengths and the place become small. The rules stand in
`RULES` (`scale_rules.py`), and doing it twice changes nothing more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kitae.recipe.overrides import Flag
from kitae.recipe.schema import Recipe
from kitae.recipe.small_inputs import Input
from kitae.recipe.sources import ModelConfig, SourceConfig, TokenizerConfig

OPTION = "--scale-down"


@dataclass(frozen=True)
class Change:
    """A value of the recipe that becomes another one."""

    path: str
    before: Any
    after: Any
    why: str

    @property
    def flag(self) -> Flag:
        """As `--set` takes it."""
        return Flag(f"{self.path}={json.dumps(self.after, ensure_ascii=False)}", origin=OPTION)


@dataclass(frozen=True)
class Reach:
    """What of a recipe's inputs can be reached from here."""

    source_bytes: Callable[[SourceConfig], int | None]
    """Size of a text that is here; None for one that is not."""
    config: Callable[[ModelConfig], Mapping[str, Any] | None]
    """config.json of the model to start from, where its sizes are known."""
    tokenizer: Callable[[TokenizerConfig], bool]
    """Whether a tokenizer is here."""
    place: Callable[[Input], str]
    """The folder of a made input."""


@dataclass
class Scaling:
    """A recipe on its way to be small: the rules add to it."""

    recipe: Recipe
    reach: Reach
    changes: list[Change] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)

    def change(self, path: str, before: Any, after: Any, why: str) -> None:
        """Add a change, if it is one."""
        if before != after:
            self.changes.append(Change(path, before, after, why))

    def made(self, one: Input) -> str:
        """Take a made input, and say where it lies."""
        if one not in self.inputs:
            self.inputs.append(one)
        return self.reach.place(one)


@dataclass(frozen=True)
class ScaledDown:
    """What has to be changed, and made, so that a recipe runs here."""

    changes: tuple[Change, ...]
    inputs: tuple[Input, ...]

    @property
    def flags(self) -> list[Flag]:
        """The changes as `--set` flags, in order."""
        return [change.flag for change in self.changes]


def scale_down(recipe: Recipe, reach: Reach, given: Iterable[str] = ()) -> ScaledDown:
    """Changes for a recipe; what a person gave on the command line (`--set` flags) stays as it is."""
    from kitae.recipe.scale_rules import RULES

    scaling = Scaling(recipe, reach)
    for rule in RULES:
        rule(scaling)
    paths = [flag.partition("=")[0].strip() for flag in given]
    kept = tuple(one for one in scaling.changes if not _is_given(one.path, paths))
    text = json.dumps([one.after for one in kept], ensure_ascii=False)
    inputs = tuple(one for one in scaling.inputs if reach.place(one) in text)
    return ScaledDown(kept, inputs)


def _is_given(path: str, paths: Sequence[str]) -> bool:
    return any(path == one or path.startswith(f"{one}.") for one in paths)
