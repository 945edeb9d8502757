"""`kitae explain` and `kitae schema`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kitae.cli.scale_option import ScaleDownOption, scaled

if TYPE_CHECKING:
    from kitae.recipe.explain import Row
    from kitae.recipe.load import LoadedRecipe
    from kitae.recipe.resolve import ResolvedRecipe

RecipeArgument = Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe file (YAML).")]
SetOption = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the recipe: --set a.b=c.")
]


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    app.command("explain")(explain)
    app.command("schema")(schema)


def explain(
    recipe: RecipeArgument,
    changes: SetOption = [],  # noqa: B006 - typer reads the default, nobody changes it
    backend: Annotated[
        str, typer.Option(help="Show it for cpu, cuda, xla or neuron; auto: this machine.")
    ] = "auto",
    scale_down: ScaleDownOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show every value of a recipe, where it came from, and why an automatic one was chosen."""
    from kitae.recipe.explain import explain as explained
    from kitae.recipe.load import load_recipe
    from kitae.recipe.resolve import resolve

    changes = scaled(recipe, changes, scale_down, quiet=as_json, keep=False)
    loaded = load_recipe(recipe, changes)
    name, devices = _machine(loaded.recipe.target.backend if backend == "auto" else backend)
    resolved = resolve(loaded.recipe, backend=name, devices=devices)
    rows = explained(loaded, resolved)
    (_print_json if as_json else _print_rows)(rows, loaded, resolved)


def schema() -> None:
    """Print the JSON Schema of recipes, for editors."""
    from kitae.recipe.reference import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))


def _machine(name: str) -> tuple[str, int]:
    """The backend to show a recipe for, and its devices here; one, where there are none."""
    from kitae.backend.table import BACKENDS, default_name

    if name == "auto":
        name = default_name()
    return name, max(1, BACKENDS[name].devices()) if name in BACKENDS else 1


def _print_json(rows: list[Row], loaded: LoadedRecipe, resolved: ResolvedRecipe) -> None:
    values = [{"path": r.path, "value": r.value, "origin": r.origin, "reason": r.reason} for r in rows]
    print(json.dumps({"values": values, "warnings": list(resolved.warnings)}, indent=2, ensure_ascii=False))


def _print_rows(rows: list[Row], loaded: LoadedRecipe, resolved: ResolvedRecipe) -> None:
    """A table on a terminal; elsewhere one line a value, with no line broken or cut."""
    cells = [(row.path, json.dumps(row.value, ensure_ascii=False), row.origin, row.reason) for row in rows]
    (_print_table if sys.stdout.isatty() else _print_plain)(cells)
    for warning in resolved.warnings:
        print(f"warning: {loaded.path}: {warning}", file=sys.stderr)


def _print_plain(cells: list[tuple[str, str, str, str]]) -> None:
    path_width, value_width, origin_width = (max(len(row[column]) for row in cells) for column in range(3))
    for path, value, origin, reason in cells:
        print(f"{path:{path_width}}  {value:{value_width}}  {origin:{origin_width}}  {reason}".rstrip())


def _print_table(cells: list[tuple[str, str, str, str]]) -> None:
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    columns = (Column("value of", no_wrap=True), Column("is", overflow="fold"), Column("from", no_wrap=True))
    table = Table(*columns, Column("because"), box=None, pad_edge=False)
    section = ""
    for path, value, origin, reason in cells:
        head = path.partition(".")[0]
        if "." in path and head != section:
            table.add_row()
        section = head
        table.add_row(
            Text(path),
            Text(value),
            Text(origin, style="dim" if origin == "default" else "cyan"),
            Text(reason),
        )
    Console().print(table)
