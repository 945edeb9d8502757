"""YAML that remembers on which line every value stands.

Plain scalars are read as the core schema of YAML 1.2 says (https://yaml.org/spec/1.2.2/, 10.3): `1e-4` is a
number, `no` and `on` are text, `<<` is a key like any other. A key that is given twice is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kitae.errors import RecipeError

KeyPath = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_MAX_VALUES = 100_000
_MAX_DEPTH = 50
# In the order they are tried: kind, pattern, the characters that such a scalar may begin with.
_SCALARS = (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", list("-+0123456789")),
    (
        "float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        list("-+.0123456789"),
    ),
)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML keeps its table on the class


class RecipeDumper(yaml.SafeDumper):
    """Writes YAML that `parse` reads back to the same values."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML keeps its table on the class

    def ignore_aliases(self, data: Any) -> bool:
        """Write every value out: a recipe is for people."""
        return True


def _represent_text(dumper: RecipeDumper, text: str) -> yaml.Node:
    # These count as line breaks, which any other style would fold away.
    style = '"' if any(mark in text for mark in "\x85\u2028\u2029") else None
    return dumper.represent_scalar(_TAG + "str", text, style=style)


RecipeDumper.add_representer(str, _represent_text)
for _class in (_Loader, RecipeDumper):
    for _kind, _pattern, _first in _SCALARS:
        _class.add_implicit_resolver(_TAG + _kind, re.compile(_pattern), _first)


@dataclass(frozen=True)
class Place:
    """What a message begins with: the name of the text, and the line where there are several."""

    name: str
    numbered: bool

    def error(self, line: int, message: str) -> RecipeError:
        """An error in a line, counted from 0."""
        return RecipeError(
            f"{self.name}:{line + 1}: {message}" if self.numbered else f"{self.name}: {message}"
        )


@dataclass(frozen=True)
class Document:
    """A parsed document: plain values, and the line of every key and list entry by its path."""

    value: Any
    lines: dict[KeyPath, int] = field(default_factory=dict)


def read_text(path: Path) -> str:
    """The text of a recipe file. Raises `RecipeError` when there is none or it is not UTF-8."""
    try:
        content = path.read_bytes()
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise RecipeError(
            f"{path}: there is no such file; give the path of a recipe (.yaml) or of a run"
        ) from None
    except IsADirectoryError:
        raise RecipeError(f"{path}: this is a folder; give the path of a recipe (.yaml) in it") from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RecipeError(f"{path}:{line}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read: {error.strerror}") from None


def parse(text: str, place: str, *, numbered: bool = True) -> Document:
    """Parse one YAML document. Raises `RecipeError` that begins with `place`, and the line if `numbered`."""
    reader = _Reader(Place(place, numbered))
    try:
        node = yaml.compose(text, Loader=_Loader)
        value = None if node is None else reader.value(node, ())
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, reader.place) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position)
        raise reader.place.error(
            line, f"an unprintable character (U+{error.character:04X}); take it out"
        ) from None
    except RecursionError:
        raise RecipeError(f"{place}: nested too deeply to be a recipe") from None
    return Document(value, reader.lines)


# What YAML says, in its problem or its context; the way out; whether the beginning is what has to be mended.
_WAYS_OUT = (
    ("could not find expected ':'", "write `key: value`, with a colon and a space", True),
    ("scanning a quoted scalar", "close the quote that begins there", True),
    ("parsing a flow", "close the bracket that opens there", True),
    ("expected <block end>", "indent lines that belong together alike", False),
    ("mapping values are not allowed", "indent lines alike, and quote a value with a colon", False),
    ("undefined alias", "quote a value that begins with *", False),
    ("cannot start any token", "quote a value that begins with such a character", False),
    ("", "check the indentation, colons and quotes there", False),
)


def _syntax_error(error: yaml.MarkedYAMLError, place: Place) -> RecipeError:
    problem = error.problem or error.context or "it cannot be parsed"
    said = f"{error.context} {problem}"
    way_out, begins = next((way, begins) for words, way, begins in _WAYS_OUT if words in said)
    marks = (error.context_mark, error.problem_mark) if begins else (error.problem_mark, error.context_mark)
    mark = marks[0] or marks[1]
    line = mark.line if mark is not None else 0
    if "'\\t'" in problem:
        return place.error(line, "a tab where YAML wants spaces; indent with spaces")
    if "single document" in said:
        return place.error(line, "a second document begins; a file is one document, take '---' out")
    return place.error(line, f"not valid YAML: {problem}; {way_out}")


class _Reader:
    """Turns nodes into plain values and notes their lines."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.lines: dict[KeyPath, int] = {}
        self._open: set[int] = set()
        self._count = 0

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        """The plain value of a node that stands at `path`."""
        self._count += 1
        if len(self._open) > _MAX_DEPTH:
            raise self._error(node, "nested too deeply to be a recipe")
        if id(node) in self._open or self._count > _MAX_VALUES:
            raise self._error(
                node, "an alias that refers to itself, or too many of them; write the values out"
            )
        self._open.add(id(node))
        try:
            return self._construct(node, path)
        finally:
            self._open.discard(id(node))

    def _construct(self, node: yaml.Node, path: KeyPath) -> Any:
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            return [self._entry(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and kind in _READ:
            return self._scalar(node, kind)
        raise self._error(node, f"the tag {node.tag!r} has no place here; take it out")

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            here = (*path, key)
            if key in result:
                both = f"lines {self.lines[here]} and {key_node.start_mark.line + 1}"
                raise self._error(key_node, f"{key}: given twice, on {both}; keep one of them")
            self.lines[here] = key_node.start_mark.line + 1
            result[key] = self.value(value_node, here)
        return result

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag.removeprefix(_TAG) not in _KEYS:
            text = node.value if isinstance(node, yaml.ScalarNode) else "a list or mapping"
            raise self._error(node, f"{text}: a key must be text or a number")
        return str(self._scalar(node, "str"))

    def _entry(self, node: yaml.Node, path: KeyPath) -> Any:
        self.lines[path] = node.start_mark.line + 1
        return self.value(node, path)

    def _scalar(self, node: yaml.ScalarNode, kind: str) -> Any:
        try:
            return _READ[kind](node.value)
        except (ValueError, KeyError):
            raise self._error(node, f"{node.value!r} cannot be read as {_KINDS[kind]}") from None

    def _error(self, node: yaml.Node, message: str) -> RecipeError:
        return self.place.error(node.start_mark.line, message)


def _read_str(text: str) -> str:
    text.encode()  # half a surrogate pair cannot be written anywhere
    return text


def _read_int(text: str) -> int:
    return int(text, 0) if text.startswith(("0o", "0x")) else int(text)


def _read_float(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


def _read_null(text: str) -> None:
    if text.lower() not in {"", "~", "null"}:
        raise ValueError(text)


def _read_bool(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


_KINDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}
_KEYS = ("str", "int", "float", "bool")
"""What a key may be; it stays as it is written."""
_READ: dict[str, Callable[[str], Any]] = {
    "str": _read_str,
    "null": _read_null,
    "bool": _read_bool,
    "int": _read_int,
    "float": _read_float,
}
