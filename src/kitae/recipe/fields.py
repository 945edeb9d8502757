"""The schema looked at by path: which field stands where, and what it wants, in words.

Error messages, `kitae explain` and the reference all take their words from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic.fields import FieldInfo

from kitae.recipe.base import DURATION_EXAMPLES, Duration, Section
from kitae.recipe.schema import Recipe

_BOUNDS = ((Gt, "gt", "above"), (Ge, "ge", "of at least"), (Lt, "lt", "below"), (Le, "le", "of at most"))
_PLAIN = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    NoneType: "null",
    Duration: f"a duration such as {', '.join(DURATION_EXAMPLES[:-1])} or {DURATION_EXAMPLES[-1]}",
}


@dataclass(frozen=True)
class Wanted:
    """What may stand at one place: a type, and the limits on it."""

    annotation: Any
    limits: tuple[Any, ...] = field(default=())

    @classmethod
    def of(cls, info: FieldInfo) -> Wanted:
        """What a field wants."""
        return cls(info.annotation, tuple(info.metadata))

    def alternatives(self) -> tuple[Wanted, ...]:
        """The members of a union; itself when it is none."""
        origin, args = get_origin(self.annotation), get_args(self.annotation)
        if origin is Annotated:
            return Wanted(args[0], (*_flat(args[1:]), *self.limits)).alternatives()
        if origin in (Union, UnionType):
            return tuple(inner for arg in args for inner in Wanted(arg, self.limits).alternatives())
        return (self,)

    def section(self) -> type[Section] | None:
        """The section that may stand here."""
        for one in self.alternatives():
            if _is_section(one.annotation):
                section: type[Section] = one.annotation
                return section
        return None

    def items(self) -> Wanted | None:
        """What the entries of the list that may stand here want."""
        for one in self.alternatives():
            if get_origin(one.annotation) in (list, tuple):
                return Wanted(get_args(one.annotation)[0])
        return None

    def entries(self) -> Wanted | None:
        """What the entries of the mapping that may stand here want, whose keys are free."""
        for one in self.alternatives():
            if get_origin(one.annotation) is dict:
                return Wanted(get_args(one.annotation)[1])
        return None

    def __str__(self) -> str:
        """In words, such as `a whole number above 0, or auto`."""
        words = [_words(one) for one in self.alternatives()]
        return words[0] if len(words) == 1 else f"{', '.join(words[:-1])}, or {words[-1]}"


def _is_section(annotation: Any) -> bool:
    # On Python 3.10 `list[int]` passes for a class, but not for one that has subclasses.
    return get_origin(annotation) is None and isinstance(annotation, type) and issubclass(annotation, Section)


def _flat(metadata: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        limit for item in metadata for limit in (item.metadata if isinstance(item, FieldInfo) else [item])
    )


def _words(one: Wanted) -> str:
    kind, args = get_origin(one.annotation), get_args(one.annotation)
    filled = any(isinstance(limit, MinLen) and limit.min_length for limit in one.limits)
    if kind is Literal:
        return (
            " or ".join(str(arg) for arg in args) if len(args) < 3 else f"one of {', '.join(map(str, args))}"
        )
    if kind is tuple:
        return f"a list of {len(args)}, each {Wanted(args[0])}"
    if kind is dict:
        return f"a mapping, each value {Wanted(args[1])}"
    if kind is list:
        return f"a {'non-empty ' if filled else ''}list, each entry {Wanted(args[0])}"
    if _is_section(one.annotation):
        return f"a mapping with keys out of {', '.join(one.annotation.model_fields)}"
    if one.annotation is str and filled:
        return "non-empty text"
    return " ".join([_PLAIN[one.annotation], *_bounds(one.limits)])


def _bounds(limits: tuple[Any, ...]) -> Iterator[str]:
    found = [
        (word, getattr(limit, name))
        for kind, name, word in _BOUNDS
        for limit in limits
        if isinstance(limit, kind)
    ]
    for number, (word, value) in enumerate(found):
        yield f"and {word.removeprefix('of ')} {value}" if number else f"{word} {value}"


def at(path: tuple[str | int, ...], root: type[Section] = Recipe) -> Wanted | None:
    """What may stand at a path of the recipe, or of another file; None when the schema has no such place."""
    here: Wanted | None = Wanted(root)
    for part in path:
        if here is None:
            return None
        here = child(here, part)
    return here


def child(here: Wanted, part: str | int) -> Wanted | None:
    """What may stand one step below; None when nothing may."""
    if isinstance(part, int):
        return here.items()
    section = here.section()
    if section is None:
        return here.entries()
    info = section.model_fields.get(part)
    return Wanted.of(info) if info is not None else None


def all_fields(section: type[Section] = Recipe, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every field of the schema in order, by dotted path; entries of lists stand under `[]`."""
    for name, info in section.model_fields.items():
        path, wanted = f"{prefix}{name}", Wanted.of(info)
        yield path, info
        items = wanted.items()
        below = wanted.section() or (items.section() if items is not None else None)
        if below is not None:
            yield from all_fields(below, f"{path}." if wanted.section() else f"{path}[].")
