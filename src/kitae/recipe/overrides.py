"""`--set a.b=c`: a value of the recipe, given on the command line."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from kitae.errors import RecipeError
from kitae.recipe.messages import dotted
from kitae.recipe.yaml_positions import Document, KeyPath, parse


class Flag(str):
    """A `--set` flag that something else than a person gave, such as `--scale-down`."""

    origin: str

    def __new__(cls, text: str, *, origin: str = "--set") -> Flag:
        """`section.key=value`, and what gave it (which pickle sets later)."""
        flag = super().__new__(cls, text)
        flag.origin = origin
        return flag


def origin_of(flag: str) -> str:
    """What gave a flag: `--set`, or another option."""
    return flag.origin if isinstance(flag, Flag) else "--set"


class Settings:
    """The values of a recipe with the flags that replaced some of them."""

    def __init__(self, document: Document) -> None:
        self.values: dict[str, Any] = document.value
        self.lines = dict(document.lines)
        self.flags: dict[KeyPath, str] = {}

    def set(self, flag: str) -> None:
        """Apply `a.b.0.c=value`; the value is YAML. Raises `RecipeError` that names the flag."""
        name, equals, text = flag.partition("=")
        parts = name.strip().split(".")
        if not equals or not all(parts):
            raise RecipeError(
                f"--set {flag}: write it as --set section.key=value, such as --set training.precision=bf16"
            )
        given = parse(text, f"--set {flag}", numbered=False)
        path = self._put(parts, given.value, flag)
        for known in [known for known in self.lines if known[: len(path)] == path]:
            del self.lines[known]
        for below in ((), *given.lines):
            self.flags[(*path, *below)] = flag

    def _put(self, parts: list[str], value: Any, flag: str) -> KeyPath:
        """Put a value in its place, making the mappings and lists above it; the path it has then."""
        holder: Any = self.values
        path: KeyPath = ()
        for part, following in pairwise(parts):
            key = _key(holder, part, path, flag)
            path = (*path, key)
            below = _get(holder, key)
            if not isinstance(below, dict | list):
                below = [] if following.isdecimal() else {}
                _store(holder, key, below)
                self.flags[path] = flag
            holder = below
        key = _key(holder, parts[-1], path, flag)
        _store(holder, key, value)
        return (*path, key)

    def place(self, path: KeyPath, file: str) -> str:
        """Where a value, or the nearest thing above it, was written: `recipe.yaml:12` or `--set a.b=c`."""
        for length in range(len(path), 0, -1):
            above = path[:length]
            if above in self.flags:
                return f"{origin_of(self.flags[above])} {self.flags[above]}"
            if above in self.lines:
                return f"{file}:{self.lines[above]}"
        return f"{file}:1"

    def origin(self, path: KeyPath, file: str) -> str:
        """Where exactly this value comes from: `recipe.yaml:12`, `--set` or `default`."""
        for where in reversed(self.flags):
            if where[: len(path)] == path:
                return origin_of(self.flags[where])
        return f"{file}:{self.lines[path]}" if path in self.lines else "default"


def _key(holder: dict[str, Any] | list[Any], part: str, path: KeyPath, flag: str) -> str | int:
    if isinstance(holder, dict):
        return part
    if not part.isdecimal() or int(part) > len(holder):
        numbers = f"a number from 0 to {len(holder)}" if holder else "0"
        raise RecipeError(
            f"--set {flag}: {dotted(path)} has {len(holder)} entries in the recipe; "
            f"write {numbers} in the place of {part!r}, or set the whole list"
        )
    return int(part)


def _get(holder: Any, key: str | int) -> object:
    if isinstance(holder, dict):
        return holder.get(key)
    return holder[key] if int(key) < len(holder) else None


def _store(holder: Any, key: str | int, value: object) -> None:
    if isinstance(holder, list) and key == len(holder):
        holder.append(value)
    else:
        holder[key] = value
