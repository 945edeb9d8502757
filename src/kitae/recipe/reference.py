"""The reference of the recipe, made from the schema: Markdown for people, JSON Schema for editors."""

from __future__ import annotations

from typing import Any

from pydantic.fields import FieldInfo

from kitae import catalog
from kitae.recipe.base import Section
from kitae.recipe.fields import Wanted
from kitae.recipe.schema import FORMAT, Recipe

_INTRODUCTION = f"""\
# Recipe reference

A recipe is one YAML file (1.2: `1e-4` is a number, `no` is text) that begins with `kitae: {FORMAT}`.

- An unknown key is an error. Paths are relative to the recipe's folder.
- Durations are `200 steps` (optimizer updates), `1.5M tokens` or `3 epochs`.
- `--set section.key=value` changes any value from the command line; list entries go by number
  (`--set data.train.0.path=other.txt`), and `null` takes a value out.
- `kitae explain RECIPE` shows every value and where it came from.
- `kitae schema` prints a JSON Schema for editors.

This page is made from the schema by `make docs`.
"""


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a recipe file; every field carries its description."""
    schema = Recipe.model_json_schema()
    definitions = schema["$defs"]
    for section in (schema, *definitions.values()):
        for value in section["properties"].values():
            if "$ref" in value:  # left undescribed where the field and its section have the same words
                inner = definitions[value["$ref"].rpartition("/")[2]]
                value.setdefault("description", inner["description"])
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"kitae recipe, format {FORMAT}",
    }
    return {**head, **{key: value for key, value in schema.items() if key != "title"}}


def reference_markdown() -> str:
    """The page docs/recipe.md."""
    return "\n".join([_INTRODUCTION, *section_tables("The whole recipe", "", Recipe, {}), *_catalogue()])


def section_tables(
    title: str, prefix: str, section: type[Section], seen: dict[type[Section], str]
) -> list[str]:
    """A section's table, followed by those of the sections under it that are not in `seen` yet."""
    head = ["| key | value | default | meaning |", "|---|---|---|---|"]
    lines = [f"## {title}", "", (section.__doc__ or "").strip(), "", *head]
    below: list[str] = []
    for name, info in section.model_fields.items():
        inner, path = _inner(info, f"{prefix}{name}")
        if inner is not None and inner not in seen:
            seen[inner] = path
            below.extend(section_tables(f"`{path}`", f"{path}.", inner, seen))
        value = _value(info, inner, seen)
        lines.append(f"| `{name}` | {value} | {_default(info)} | {_escape(info.description or '')} |")
    return [*lines, "", *below]


def _inner(info: FieldInfo, path: str) -> tuple[type[Section] | None, str]:
    """The section that a field holds, itself or as entries of a list, and the path to write above it."""
    wanted = Wanted.of(info)
    items = wanted.items()
    if wanted.section() is not None or items is None:
        return wanted.section(), path
    return items.section(), f"{path}[]"


def _value(info: FieldInfo, inner: type[Section] | None, seen: dict[type[Section], str]) -> str:
    words = str(Wanted.of(info))
    if inner is not None:
        words = words.replace(
            f"a mapping with keys out of {', '.join(inner.model_fields)}", f"as `{seen[inner]}`"
        )
    return _escape(words.removesuffix(", or null") if info.default is None else words)


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "**required**"
    value = info.get_default()
    if value is None or isinstance(value, Section):
        return "–" if value is None else "its own"
    if isinstance(value, list | tuple):
        return _escape(", ".join(f"`{one}`" for one in value))
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _catalogue() -> list[str]:
    lines = ["## Names in the catalogue", "", "| `model.preset` | shape | source, entered |", "|---|---|---|"]
    lines += [
        f"| `{one.name}` | {one.description} | {one.source}, {one.date} |"
        for one in catalog.presets().values()
    ]
    lines += ["", "| `model.named` | what it is | arrives in | licence |", "|---|---|---|---|"]
    lines += [
        f"| `{one.name}` | {one.description} | `{one.package}` {one.version} | {one.licence} |"
        for one in catalog.named_models().values()
    ]
    return [*lines, ""]


def _escape(text: str) -> str:
    """Text in one line that does not end a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
