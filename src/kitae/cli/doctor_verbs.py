"""`kitae doctor`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kitae.cli.recipe_verbs import SetOption

_WIDE = 42
"""Characters of the longest variable's name."""


SubjectArgument = Annotated[
    Path | None,
    typer.Argument(metavar="[RECIPE|FOLDER]", help="A recipe, a run, or the folder of a tokenizer or model."),
]
DictionaryOption = Annotated[
    str | None, typer.Option(metavar="NAME|FOLDER", help="MeCab dictionary to look at a FOLDER with.")
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        help="What is meant to be trained on: a machine type of `kitae catalog`, cpu, cuda, or here.",
    ),
]
PrecisionOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Of --target: fp32, bf16, bf16-sr or autocast; default the recipe's."),
]
ChipOption = Annotated[
    bool,
    typer.Option(
        "--chip-test", help="Try the machine itself: collectives, losses, rounding, resume, precompile."
    ),
]
BackendOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Of --chip-test: cpu, cuda, xla or neuron.")
]
OutOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Of --chip-test: where its page goes.", show_default="chip-test"),
]


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command("doctor")(doctor)


def doctor(
    subject: SubjectArgument = None,
    changes: SetOption = [],  # noqa: B006
    dictionary: DictionaryOption = None,
    target: TargetOption = None,
    precision: PrecisionOption = None,
    chip_test: ChipOption = False,
    backend: BackendOption = None,
    out: OutOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look whether machine, tokenizer, dictionary and text fit together; exit code 1 when they do not.

    With --target also: every variable that ranks get there, with its reason, and what this machine lacks.
    """
    from kitae.doctor.checks import examine
    from kitae.errors import RecipeError
    from kitae.stages.examining import aim, patient_of

    if chip_test:
        if subject or changes or dictionary or target or precision:
            raise RecipeError(
                "--chip-test tries this machine as it is: leave out all but --backend and --out"
            )
        _test_chip(backend, out or Path("chip-test"), as_json)
        return
    if backend is not None or out is not None:
        raise RecipeError("--backend and --out are of the chip test; give --chip-test, too")
    if target is not None:
        patient = aim(target, precision, subject, changes, dictionary)
    elif precision is not None:
        raise RecipeError("--precision is of a target; give --target TYPE, too (here: this machine)")
    else:
        patient = patient_of(subject, changes, dictionary)
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


def _test_chip(backend: str | None, out: Path, as_json: bool) -> None:
    """Go through the parts; exit code 1 when one failed."""
    from kitae.backend.table import chosen
    from kitae.doctor.chip.page import NAME
    from kitae.doctor.chip.run import chip_test

    results = chip_test(chosen(backend), out.absolute(), _say(as_json))
    if as_json:
        print((out / f"{NAME}.json").read_text(encoding="utf-8"), end="")
    if any(one.verdict == "failed" for one in results.values()):
        raise typer.Exit(1)


def _say(as_json: bool) -> Callable[[str], None]:
    return (lambda line: None) if as_json else lambda line: print(line, flush=True)
