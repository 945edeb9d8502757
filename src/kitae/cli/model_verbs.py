"""`kitae inspect`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kitae.cli.recipe_verbs import SetOption
from kitae.cli.run_verbs import RunArgument


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command("inspect")(inspect)


def inspect(
    recipe: RunArgument,
    changes: SetOption = [],  # noqa: B006
    rows: Annotated[str, typer.Option(help="Row numbers, such as 0,5,7.")] = "0",
    split: Annotated[Literal["train", "heldout"], typer.Option(help="Which text.")] = "train",
    epoch: Annotated[int, typer.Option(min=0, help="Whose masks to show, where they change.")] = 0,
    card: Annotated[bool, typer.Option(help="Show the data card.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look at rows as the model gets them: ids, tokens, targets, masks, labels; and at the data card."""
    from kitae.data.inspect import render
    from kitae.errors import RecipeError
    from kitae.stages.heads import tokenizer_of
    from kitae.stages.job import open_job
    from kitae.stages.training import prepared

    try:
        numbers = [int(part) for part in rows.split(",") if part.strip()]
    except ValueError:
        raise RecipeError(f"--rows: {rows!r} is not a list of row numbers; write it as 0,5,7") from None
    job = open_job(recipe, changes, report=_to_stderr)
    folder, tokenizer = prepared(job).folder, tokenizer_of(job)
    print(render(folder, tokenizer, numbers, split=split, epoch=epoch, as_json=as_json, card=card))


def _to_stderr(line: str) -> None:
    typer.echo(line, err=True)
