"""`kitae convert` and `kitae weights`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

Order = Literal["trn1", "trn2"]
SourceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="SRC",
        help="A Hugging Face, kitae or NxD folder, or a .gguf, .safetensors, .bin or .pt file.",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The model's config.json, where SRC carries none, as NxD folders do."),
]
OrderOption = Annotated[
    Order | None,
    typer.Option(
        help="On which NxD ranks the copies of KV heads lie: trn1 spreads them, trn2 puts them on neighbours."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    app.command("convert")(convert)
    app.command("weights")(weights)


def convert(
    source: SourceArgument,
    target: Annotated[Path, typer.Argument(metavar="DST", help="The folder to make.")],
    to: Annotated[
        Literal["hf", "nxd", "kitae"] | None,
        typer.Option(help="What DST is to be: a Hugging Face folder, NxD rank files, or a kitae checkpoint."),
    ] = None,
    tp: Annotated[int | None, typer.Option(min=1, metavar="N", help="NxD: tensor-parallel ranks.")] = None,
    pp: Annotated[int | None, typer.Option(min=1, metavar="N", help="NxD: pipeline stages (1).")] = None,
    kv_multiplier: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="NxD: ranks that hold each KV head (derived).")
    ] = None,
    order: OrderOption = None,
    fused_qkv: Annotated[
        bool, typer.Option("--fused-qkv", help="NxD: query, key and value in one tensor (weight_qkv).")
    ] = False,
    xser: Annotated[
        bool,
        typer.Option("--xser", help="NxD: a file for each tensor, as NxD's training saves and loads them."),
    ] = False,
    dtype: Annotated[
        Literal["fp32", "bf16", "fp16"] | None, typer.Option(help="Type of the result's weights (as in SRC).")
    ] = None,
    config: ConfigOption = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where the tokenizer's files are, when not beside SRC."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be written and whether it fits; write nothing.")
    ] = False,
    proof: Annotated[
        Literal["values", "logits", "none"],
        typer.Option(help="How much to prove; logits, against transformers, holds values."),
    ] = "logits",
) -> None:
    """Convert weights to another format, and prove the result."""
    from kitae.checkpoint.convert import convert as converted
    from kitae.checkpoint.convert_options import Options

    options = Options(
        to=to,
        tp=tp,
        pp=pp,
        kv_multiplier=kv_multiplier,
        order=order,
        fused_qkv=fused_qkv or None,
        xser=xser or None,
        dtype=dtype,
        config=config,
        tokenizer=tokenizer,
        dry_run=dry_run,
        proof=proof,
    )
    converted(source, target, options, report=_say)


def weights(
    source: SourceArgument,
    other: Annotated[
        Path | None, typer.Argument(metavar="OTHER", help="Weights of any format to compare with.")
    ] = None,
    config: ConfigOption = None,
    order: OrderOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what weights are, or compare two, tensor by tensor; exit code 1 when they differ."""
    from kitae.checkpoint.describe import describe, lines
    from kitae.checkpoint.opened import open_weights
    from kitae.checkpoint.reading import reading

    if other is not None:
        _compare(source, other, config, order, as_json)
        return
    with reading(source):
        facts = describe(open_weights(source, config, order=order))
    print(json.dumps(facts) if as_json else "\n".join(lines(facts)))


def _compare(source: Path, other: Path, config: Path | None, order: Order | None, as_json: bool) -> None:
    from kitae.checkpoint import compare_report as report
    from kitae.checkpoint.compare import compare
    from kitae.checkpoint.reading import reading

    with reading(source):
        first, second = report.open_both(source, other, config, order)
        found = compare(*report.comparable(first, second))
    print(report.as_json(first, second, found) if as_json else "\n".join(report.lines(first, second, found)))
    if any(one.verdict != "equal" for one in found):
        raise typer.Exit(1)


def _say(line: str) -> None:
    typer.echo(line)
