"""`kitae new`: three questions, and a recipe that fits this machine."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kitae.recipe.starter import What

_OPTIONS = "--what, --model and --text"


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command("new")(new)


def new(
    file: Annotated[Path, typer.Argument(metavar="RECIPE", help="The file to write.")] = Path("recipe.yaml"),
    what: Annotated[
        str | None,
        typer.Option(metavar="WHAT", help="What to do: continue, pretrain, classify or masked."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Which model: a name of the catalogue, a folder, or a Hub id."),
    ] = None,
    text: Annotated[
        str | None, typer.Option(metavar="PATH", help="Which text: a file, a folder, or a quoted pattern.")
    ] = None,
) -> None:
    """Ask what to do, with which model and which text, and write a recipe that fits this machine."""
    from kitae.recipe.starter import starter_recipe
    from kitae.stages.starting import default_model, fitted, known_models, wish_of, write_new

    _refuse(file, None in (what, model, text))
    chosen = _what(what)
    text = text or _ask("Which text? A file, a folder, or a pattern such as texts/*.txt", None)
    proposed = default_model(chosen, text)
    model = model or _ask(f"Which model? A folder, a Hub id, or {', '.join(known_models(chosen))}", proposed)
    wish, said = fitted(wish_of(_name(file), chosen, model, text))
    write_new(file, starter_recipe(wish))
    print(f"{file} is written: {said}")
    print(f"look at it, then: kitae run {file}")


def _refuse(file: Path, asks: bool) -> None:
    """Raise `RecipeError` before anybody has answered a question in vain."""
    from kitae.errors import RecipeError

    if file.exists():
        raise RecipeError(f"{file} is there already, and is left as it is; name another file: kitae new FILE")
    if asks and not sys.stdin.isatty():
        raise RecipeError(f"kitae new asks three questions, and nobody can answer here; give {_OPTIONS}")


def _what(given: str | None) -> What:
    from kitae.errors import RecipeError
    from kitae.recipe.starter import WHATS
    from kitae.suggest import did_you_mean

    if given is None:
        print("What do you want to do?", *(f"  {name:9} {said}" for name, said in WHATS.items()), sep="\n")
        given = _ask("One of these", "continue")
    for name in WHATS:
        if given == name:
            return name
    raise RecipeError(f"--what: {given!r} is none of {', '.join(WHATS)}{did_you_mean(given, WHATS)}")


def _ask(question: str, default: str | None) -> str:
    answer: str = typer.prompt(question, default=default)
    return answer.strip()


def _name(file: Path) -> str:
    """A run's name out of a file's."""
    found = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).strip("-._")
    return found[:100] or "recipe"
