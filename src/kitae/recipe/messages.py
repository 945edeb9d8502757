"""What is wrong with a recipe, in the words of a person who writes recipes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from kitae.recipe.base import FieldError, Section
from kitae.recipe.fields import Wanted, all_fields, at, child
from kitae.recipe.schema import Recipe
from kitae.recipe.yaml_positions import KeyPath
from kitae.suggest import nearest

Problem = tuple[KeyPath, str]
"""Where, and what is wrong and how to get out of it."""

_KINDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}
_NOT_FOUND = object()
_MOVED: dict[KeyPath, str] = {
    ("tensorboard",): "TensorBoard is one of several trackers now: write tracking.trackers: [tensorboard]"
}
"""Keys that recipes of an older kitae may have, and what stands for them."""


def dotted(path: Iterable[str | int]) -> str:
    """A path as people write it: `data.train.0.path`."""
    return ".".join(str(part) for part in path)


def problems(error: ValidationError, values: dict[str, Any], root: type[Section] = Recipe) -> list[Problem]:
    """Everything that is wrong with `values`, once each; `root` is the schema that they broke."""
    details = [(_place(detail, root), detail) for detail in error.errors(include_url=False)]
    details.sort(key=lambda pair: [str(part) for part in pair[0]])
    groups = [
        (path, [detail for _, detail in group]) for path, group in groupby(details, key=lambda pair: pair[0])
    ]
    deeper = [path for path, _ in groups]
    # A mapping that may also be a word is told that it is not the word; what is wrong inside it says more.
    kept = [
        (p, group) for p, group in groups if not any(len(d) > len(p) and d[: len(p)] == p for d in deeper)
    ]
    return [_problem(path, group, values, root) for path, group in kept]


def _place(detail: ErrorDetails, root: type[Section]) -> KeyPath:
    """The path of an error, without the marks that pydantic puts in for the members of a union."""
    path: list[str | int] = []
    here: Wanted | None = Wanted(root)
    for part in detail["loc"]:
        below = child(here, part) if here is not None else None
        if below is not None:
            path.append(part)
            here = below
    if detail["type"] == "extra_forbidden":
        path.append(detail["loc"][-1])
    elif detail["type"] == "missing" and path and isinstance(path[-1], int):
        path.pop()  # a list that is too short
    return tuple(path)


def _problem(
    path: KeyPath, group: list[ErrorDetails], values: dict[str, Any], root: type[Section]
) -> Problem:
    found = _look_up(values, path)
    own = next((detail for detail in group if detail["type"] == "value_error"), None)
    if own is not None and (len(group) == 1 or isinstance(found, dict)):
        return _own_rule(path, own)
    message = _missing if found is _NOT_FOUND else _MESSAGES.get(group[0]["type"], _wrong_value)
    return path, message(path, found, root)


def _own_rule(path: KeyPath, detail: ErrorDetails) -> Problem:
    error = detail["ctx"]["error"]
    if isinstance(error, FieldError):
        return (*path, *error.field.split(".")), error.message
    return path, str(error)


def unknown_key(path: KeyPath, root: type[Section] = Recipe) -> str:
    """The message for a key that does not exist: the nearest key here, or one of that name elsewhere."""
    if path in _MOVED:
        return f"unknown key; {_MOVED[path]}"
    *above, name = path
    parent = at(tuple(above), root)
    section = parent.section() if parent is not None else None
    siblings = list(section.model_fields) if section is not None else []
    elsewhere = [known for known, _ in all_fields(root) if known.rpartition(".")[2] == name]
    candidates = [dotted((*above, key)) for key in nearest(str(name), siblings)] or elsewhere[:3]
    if candidates:
        return f"unknown key; did you mean {' or '.join(candidates)}?"
    return f"unknown key; the keys here are {', '.join(siblings)}"


def _unknown(path: KeyPath, found: object, root: type[Section]) -> str:
    return unknown_key(path, root)


def _missing(path: KeyPath, found: object, root: type[Section]) -> str:
    return f"missing; add it: {at(path, root)} ({_help(path, root)})"


def _wrong_text(path: KeyPath, found: object, root: type[Section]) -> str:
    return f"found {_show(found)}; write another: {_help(path, root)}"


def _wrong_value(path: KeyPath, found: object, root: type[Section]) -> str:
    wanted = str(at(path, root))
    quotes = f", in quotes: '{found}'" if wanted.endswith("text") and isinstance(found, int | float) else ""
    return f"found {_show(found)}; write {wanted}{quotes}"


_MESSAGES: dict[str, Callable[[KeyPath, object, type[Section]], str]] = {
    "extra_forbidden": _unknown,
    "string_pattern_mismatch": _wrong_text,
}


def _help(path: KeyPath, root: type[Section]) -> str:
    parent, info = at(path[:-1], root), None
    section = parent.section() if parent is not None else None
    if section is not None:
        info = section.model_fields.get(str(path[-1]))
    return " ".join(((info.description if info is not None else None) or "").split()).rstrip(".")


def _look_up(values: Any, path: KeyPath) -> object:
    for part in path:
        try:
            values = values[part]
        except (KeyError, IndexError, TypeError):
            return _NOT_FOUND
    return values


def _show(found: object) -> str:
    if found is None:
        return "nothing"
    if isinstance(found, dict):
        return f"a mapping with {', '.join(found)}" if found else "an empty mapping"
    if isinstance(found, list):
        return f"a list of {len(found)}" if found else "an empty list"
    text = repr(found) if isinstance(found, str) else str(found).lower()
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({_KINDS[type(found)]})"
