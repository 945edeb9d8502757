"""`kitae doctor`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kitae.cli.recipe_verbs import SetOption


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command("doctor")(doctor)


def doctor(
    subject: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RECIPE|FOLDER]", help="A recipe, a run, or the folder of a tokenizer or model."
        ),
    ] = None,
    changes: SetOption = [],  # noqa: B006
    dictionary: Annotated[
        str | None, typer.Option(metavar="NAME|FOLDER", help="MeCab dictionary to look at a FOLDER with.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look whether machine, tokenizer, dictionary and text fit together; exit code 1 when they do not."""
    from kitae.doctor.checks import examine
    from kitae.stages.examining import patient_of

    findings = []
    for finding in examine(patient_of(subject, changes, dictionary)):
        findings.append(finding)
        if not as_json:
            print(f"{finding.level:4}  {finding.subject:17}  {finding.text}", flush=True)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2, ensure_ascii=False))
    if any(finding.level == "fail" for finding in findings):
        raise typer.Exit(1)
