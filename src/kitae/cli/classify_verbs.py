"""`kitae classify`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kitae.stages.classifying import Verdict


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command("classify")(classify)


def classify(
    model: Annotated[
        Path, typer.Argument(metavar="RUN|FOLDER", help="A run, a checkpoint or a model folder.")
    ],
    text: Annotated[list[str], typer.Option(help="A text to label; may be given many times.")] = [],  # noqa: B006
    text_pair: Annotated[
        list[str],
        typer.Option(help="The second text of each, for a model of pairs."),
    ] = [],  # noqa: B006
    file: Annotated[
        Path | None,
        typer.Option(help="A file of texts: one a line, or JSON lines, CSV, TSV or Parquet."),
    ] = None,
    text_field: Annotated[str, typer.Option(help="Field of the file that holds the text.")] = "text",
    text_pair_field: Annotated[
        str | None, typer.Option(help="Field of the file that holds the second text.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts in one forward pass.")] = 32,
    dictionary: Annotated[
        str | None,
        typer.Option(metavar="NAME|FOLDER", help="MeCab dictionary, where the model's files do not find it."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a text.")] = False,
) -> None:
    """Label texts with a trained classifier."""
    _check(text, text_pair, file)
    from kitae.stages.classifying import given_texts, open_classifier, texts_of

    documents = given_texts(text, text_pair) if file is None else texts_of(file, text_field, text_pair_field)
    shown = _as_json if as_json else _as_line
    cut = 0
    for verdict in open_classifier(model, dictionary)(documents, batch_size):
        print(shown(verdict))
        cut += verdict.cut_tokens > 0
    if cut:
        print(f"{cut:,} texts were longer than the model reads: their ends were cut off", file=sys.stderr)


def _check(text: list[str], text_pair: list[str], file: Path | None) -> None:
    from kitae.errors import RecipeError

    if bool(text) == (file is not None):
        raise RecipeError("give the texts with --text, or a file of them with --file, and not both")
    if text_pair and len(text_pair) != len(text):
        raise RecipeError(
            f"--text-pair: {len(text_pair)} for {len(text)} texts; give one for each --text, or none"
        )


def _as_json(verdict: Verdict) -> str:
    return json.dumps(asdict(verdict), ensure_ascii=False)


def _as_line(verdict: Verdict) -> str:
    """Label, score and text, separated by tabs; white space in the text becomes blanks."""
    return f"{verdict.label}\t{verdict.score:.4f}\t{' '.join(verdict.text.split())}"
