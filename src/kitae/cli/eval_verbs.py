"""`kitae eval`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kitae.cli.generate_verbs import BackendOption, DtypeOption, TokenizerOption, absolute
from kitae.cli.recipe_verbs import SetOption
from kitae.cli.weights_verbs import ConfigOption, OrderOption

if TYPE_CHECKING:
    from kitae.stages.text_model import Opening

JudgedArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RECIPE|RUN|FOLDER|NXD",
        help="A recipe or run, judged on its held-out rows; with --data or --tasks, any weights.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command("eval")(evaluate)


def evaluate(
    model: JudgedArgument,
    changes: SetOption = [],  # noqa: B006
    other: Annotated[
        Path | None,
        typer.Option("--model", help="Weights to judge on the recipe's rows instead of the run's newest."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Text to judge by: a file, folder or glob, as data.train has it.")
    ] = None,
    document: Annotated[
        Literal["file", "line", "paragraph"], typer.Option(help="What a document of a text file is.")
    ] = "file",
    text_field: Annotated[str, typer.Option(help="Field of records that holds the text.")] = "text",
    sequence_length: Annotated[
        int | None, typer.Option(help="Tokens that see each other at most (2048, or the model's positions).")
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Tasks of lm-evaluation-harness (extra kitae[eval])."),
    ] = None,
    tasks_folder: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where more tasks are described.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Examples of each task at most.")] = None,
    quantize: Annotated[
        Literal["none", "int8"],
        typer.Option(help="int8: judged with 8-bit matrices and without, and what that costs."),
    ] = "none",
    dtype: DtypeOption = "auto",
    backend: BackendOption = "auto",
    tp: Annotated[int, typer.Option(min=1, metavar="N", help="With --data: tensor-parallel processes.")] = 1,
    config: ConfigOption = None,
    order: OrderOption = None,
    tokenizer: TokenizerOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge a model: held-out loss, perplexity of any text, or tasks of lm-evaluation-harness."""
    from kitae.stages.text_model import Opening

    opening = Opening(
        str(model.absolute()),
        config=absolute(config),
        order=order,
        tokenizer=absolute(tokenizer),
        dtype=dtype,
        quantize=quantize,
        backend=backend,
    )
    _check(data, tasks, other, changes, tp, tasks_folder or limit)
    if tasks is not None:
        found = _tasks(opening, tasks, tasks_folder, limit)
    elif data is not None:
        from kitae.stages.judging import Text, judge_text

        found = judge_text(opening, Text(str(data), document, text_field, sequence_length), tp)
    else:
        _check_rows(opening, sequence_length)
        found = _heldout(model, changes, other, quantize)
    print(json.dumps(found) if as_json else "\n".join(_lines(found)))


def _check(
    data: Path | None, tasks: str | None, other: Path | None, changes: list[str], tp: int, of_tasks: object
) -> None:
    """Raise `RecipeError` for options that have no effect together."""
    from kitae.errors import RecipeError

    if data is not None and tasks is not None:
        raise RecipeError("give --data or --tasks, and not both")
    if (data or tasks) and (other or changes):
        raise RecipeError(
            "--model and --set belong to a recipe's rows; leave them out with --data and --tasks"
        )
    if of_tasks and tasks is None:
        raise RecipeError("--tasks-folder and --limit need --tasks")
    if tp > 1 and data is None:
        raise RecipeError("--tp needs --data: rows of a recipe and tasks are judged in one process")


def _check_rows(opening: Opening, sequence_length: int | None) -> None:
    """Raise `RecipeError` for what a recipe says itself, or what has no effect on its rows."""
    from kitae.errors import RecipeError

    given = {
        "--sequence-length": sequence_length is not None,
        "--dtype": opening.dtype != "auto",
        "--backend": opening.backend != "auto",
        "--config": opening.config is not None,
        "--order": opening.order is not None,
        "--tokenizer": opening.tokenizer is not None,
    }
    for name in (name for name, there in given.items() if there):
        raise RecipeError(
            f"{name} needs --data or --tasks: a recipe's rows are judged as its training judges them"
        )


def _tasks(opening: Opening, tasks: str, folder: Path | None, limit: int | None) -> dict[str, Any]:
    from kitae.stages.harness import run_tasks

    return run_tasks(opening, [name for name in tasks.split(",") if name], folder, limit)


def _heldout(recipe: Path, changes: list[str], other: Path | None, quantize: str) -> dict[str, Any]:
    from kitae.stages.evaluating import evaluate_job, quantised_cost
    from kitae.stages.job import open_job

    job = open_job(recipe, changes, report=lambda line: typer.echo(line, err=True))
    return evaluate_job(job, other) if quantize == "none" else quantised_cost(job, other)


def _lines(found: dict[str, Any]) -> list[str]:
    from kitae.stages.evaluating import evaluation_line
    from kitae.stages.harness import task_lines
    from kitae.stages.judging import judged_lines

    if "results" in found:
        return task_lines(found)
    return [evaluation_line(found)] if "rows" in found else judged_lines(found)
