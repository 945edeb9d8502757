"""Where the relative paths of a recipe lead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar, get_args, get_origin

from kitae.recipe.base import IS_LOCAL_PATH, Section
from kitae.recipe.fields import Wanted

AnySection = TypeVar("AnySection", bound=Section)


def with_absolute_paths(section: AnySection, base: Path) -> AnySection:
    """A copy whose relative paths start at `base`, so that it finds its files from anywhere.

    `runs` stays as it is: it starts where kitae is started.
    """
    return with_paths(section, lambda owner, name, value: str(base.resolve() / value))


def with_paths(section: AnySection, place: Callable[[Section, str, str], str]) -> AnySection:
    """A copy whose paths are what `place` makes of them: a section of it, the field's name, and its value."""
    changes: dict[str, object] = {}
    for name, info in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, Section):
            changes[name] = with_paths(value, place)
        elif isinstance(value, list):
            changes[name] = [with_paths(v, place) if isinstance(v, Section) else v for v in value]
        elif isinstance(value, str) and _is_path(Wanted.of(info), value):
            changes[name] = place(section, name, value)
    return section.model_copy(update=changes)


def _is_path(wanted: Wanted, value: str) -> bool:
    """Whether the field holds a path, and not one of the words that may stand in its place."""
    ways = wanted.alternatives()
    word = any(get_origin(one.annotation) is Literal and value in get_args(one.annotation) for one in ways)
    return not word and any(IS_LOCAL_PATH in one.limits for one in ways)
