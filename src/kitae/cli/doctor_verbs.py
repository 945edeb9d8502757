"""`kitae doctor`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kitae.cli.recipe_verbs import SetOption

_WIDE = 42
"""Characters of the longest variable's name."""


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
    target: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE",
            help="What is meant to be trained on: a machine type of `kitae catalog`, cpu, cuda, or here.",
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Of --target: fp32, bf16, bf16-sr or autocast; default the recipe's."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look whether machine, tokenizer, dictionary and text fit together; exit code 1 when they do not.

    With --target also: every variable that ranks get there, with its reason, and what this machine lacks.
    """
    from kitae.doctor.checks import examine
    from kitae.stages.examining import aim, patient_of

    patient = aim(patient_of(subject, changes, dictionary), target, precision, subject)
    findings = []
    width = 17 if target is None else _WIDE
    for finding in examine(patient):
        findings.append(finding)
        if not as_json:
            source = f" [{finding.source}]" if finding.source else ""
            print(f"{finding.level:4}  {finding.subject:{width}}  {finding.text}{source}", flush=True)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2, ensure_ascii=False))
    if any(finding.level == "fail" for finding in findings):
        raise typer.Exit(1)
