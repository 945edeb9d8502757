"""The recipe of a run: where it differs from the defaults, all of it; and where runs differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kitae.recipe.base import Section
from kitae.recipe.fields import Wanted, child
from kitae.recipe.schema import Recipe
from kitae.watch.report.blocks import Block, Fold, Listing, Table, Words
from kitae.watch.report.conceal import HIDDEN, holds_secret
from kitae.watch.report.run_view import RunView

Leaves = dict[str, Any]
"""Dotted path -> value."""
_NO_DEFAULT, _UNKNOWN = object(), object()
_WORDS = {_NO_DEFAULT: "none: it must be given", _UNKNOWN: "this kitae does not know the key"}
_AUTO = "auto"
_VALUE = 300
"""Characters of one value in a table."""
_OWN = ("kitae", "name", "runs")
"""What every run has of its own, and says nothing about the training."""


def recipe(view: RunView) -> Iterator[Block]:
    """Differences from the defaults, what was chosen for what is automatic, then the whole text."""
    if not view.recipe_text:
        return
    rows = [
        (path, _value(path, value), _default_shown(path))
        for path, value in leaves(view.recipe).items()
        if path not in _OWN and _differs(path, value)
    ]
    given = tuple(row for row in rows if row[2] != _AUTO)
    chosen = tuple(row[:2] for row in rows if row[2] == _AUTO)
    if given:
        yield Table(
            "where it differs from the defaults", ("key", "value", "default"), given, frozenset({0, 1, 2})
        )
    if chosen:
        yield Table("what is auto by default", ("key", "value"), chosen, frozenset({0, 1}))
    yield Fold("The whole recipe, as resolved", (Listing("recipe.yaml", view.recipe_text),))


def leaves(value: object, path: str = "") -> Leaves:
    """Values at the ends of nested ones; a list of plain values is one value."""
    if isinstance(value, Mapping) and value:
        found = (leaves(one, f"{path}.{name}".lstrip(".")) for name, one in value.items())
        return {key: one for inside in found for key, one in inside.items()}
    if isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        found = (leaves(one, f"{path}.{place}") for place, one in enumerate(value))
        return {key: one for inside in found for key, one in inside.items()}
    return {path: value}


def differences(views: Sequence[RunView]) -> Iterator[Block]:
    """Where the recipes of several runs are not the same, as far as they can be read."""
    known = [view for view in views if view.recipe]
    if len(known) < len(views):
        lacking = ", ".join(view.name for view in views if not view.recipe)
        yield Words(f"Without a recipe that can be read: {lacking}.", "warn")
    if len(known) > 1:
        yield _differing(known)


def _differing(views: Sequence[RunView]) -> Block:
    found = [leaves(view.recipe) for view in views]
    paths = dict.fromkeys(path for one in found for path in one if path not in _OWN)
    rows = [
        (path, *(_value(path, one[path]) if path in one else "–" for one in found))
        for path in paths
        if len({_shown(one[path]) if path in one else None for one in found}) > 1
    ]
    if not rows:
        return Words("The recipes are the same.")
    names = (view.name for view in views)
    everywhere = frozenset(range(len(views) + 1))
    return Table("where the recipes differ", ("key", *names), tuple(rows), everywhere)


def _value(path: str, value: object) -> str:
    return HIDDEN if holds_secret(path) and value is not None else _shown(value)


def _differs(path: str, value: object) -> bool:
    default = default_of(path)
    return default in (_NO_DEFAULT, _UNKNOWN) or _shown(value) != _shown(default)


def _default_shown(path: str) -> str:
    default = default_of(path)
    return _WORDS[default] if default in (_NO_DEFAULT, _UNKNOWN) else _shown(default)


def default_of(path: str) -> Any:
    """The default of a key of the recipe; `_NO_DEFAULT` where it has none, `_UNKNOWN` without such a key."""
    here: Wanted | None = Wanted(Recipe)
    default: Any = _NO_DEFAULT
    for part in path.split("."):
        if here is None:
            return _UNKNOWN
        default = _below(default, here.section(), part)
        listed = part.isdecimal() and here.items() is not None
        here = child(here, int(part) if listed else part)
    return _UNKNOWN if here is None else default


def _below(default: Any, section: type[Section] | None, part: str) -> Any:
    """The default one step down: of the section's own default where that is one, else of its field."""
    if isinstance(default, Section) and part in type(default).model_fields:
        return getattr(default, part)
    info = None if section is None else section.model_fields.get(part)
    if info is None or info.is_required():
        return _NO_DEFAULT
    return info.get_default(call_default_factory=True, validated_data={})


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, list | tuple):
        text = f"[{', '.join(_shown(one) for one in value)}]"
    elif isinstance(value, Section):
        text = _shown(value.model_dump(mode="json"))
    elif isinstance(value, Mapping):
        text = "{" + ", ".join(f"{name}: {_shown(one)}" for name, one in value.items()) + "}"
    else:
        text = str(value)
    return text if len(text) <= _VALUE else f"{text[:_VALUE]} …"
