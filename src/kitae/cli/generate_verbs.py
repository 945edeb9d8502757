"""`kitae generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kitae.cli.weights_verbs import ConfigOption, OrderOption

ModelArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN|FOLDER|NXD",
        help="A run, a checkpoint, a Hugging Face or NxD folder, or a .gguf, .safetensors or .bin file.",
    ),
]
TokenizerOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Where the tokenizer's files are, when not beside the weights."),
]
DtypeOption = Annotated[
    Literal["auto", "fp32", "bf16"],
    typer.Option(help="What is computed in; auto is fp32 on a CPU and bf16 elsewhere."),
]
BackendOption = Annotated[
    Literal["auto", "cpu", "cuda", "xla", "neuron"],
    typer.Option(help="What computes; auto is the CPU where each shape would be compiled (xla)."),
]

ChatOption = Annotated[
    bool | None,
    typer.Option(
        "--chat/--no-chat",
        help="Take the prompt as a message of a conversation, or as a text to continue. By default a message "
        "where the tokenizer has a chat template.",
    ),
]
PromptFileOption = Annotated[
    Path | None, typer.Option(help="A file of prompts: one a line, or JSON lines, CSV, TSV or Parquet.")
]
MinPOption = Annotated[
    float | None, typer.Option(help="Draw from tokens at least this likely, as a share of the likeliest.")
]
PenaltyOption = Annotated[float, typer.Option(help="Above 1, what the text has already becomes less likely.")]
QuantizeOption = Annotated[
    Literal["none", "int8"], typer.Option(help="Keep matrices in 8 bits, a scale for each output.")
]


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command("generate")(generate)


def generate(
    model: ModelArgument,
    prompt: Annotated[
        list[str], typer.Option(help="A text to continue, or a message; may be given many times.")
    ] = [],  # noqa: B006
    file: PromptFileOption = None,
    text_field: Annotated[str, typer.Option(help="Field of the file that holds the prompt.")] = "text",
    chat: ChatOption = None,
    max_new_tokens: Annotated[int, typer.Option(help="Tokens to add at most.")] = 50,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token.")] = 0.0,
    top_k: Annotated[int | None, typer.Option(help="Draw from the k likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the fewest tokens with this share.")] = None,
    min_p: MinPOption = None,
    repetition_penalty: PenaltyOption = 1.0,
    stop: Annotated[list[str], typer.Option(help="End before this text; may be given many times.")] = [],  # noqa: B006
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    num: Annotated[int, typer.Option(help="Samples of each prompt.")] = 1,
    batch_size: Annotated[int, typer.Option(min=1, help="Prompts that run together.")] = 8,
    stream: Annotated[bool, typer.Option("--stream", help="Print the text as it comes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a text.")] = False,
    tp: Annotated[int, typer.Option(min=1, metavar="N", help="Tensor-parallel processes.")] = 1,
    quantize: QuantizeOption = "none",
    dtype: DtypeOption = "auto",
    backend: BackendOption = "auto",
    config: ConfigOption = None,
    order: OrderOption = None,
    tokenizer: TokenizerOption = None,
) -> None:
    """Continue texts, or answer messages, with a trained model."""
    from kitae.stages.generating import Request, generate_texts
    from kitae.stages.text_model import Opening

    request = Request(
        prompts=_prompts(prompt, file, text_field),
        chat=chat,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        stop=stop,
        seed=seed,
        num=num,
        batch_size=batch_size,
        stream=stream,
        as_json=as_json,
    )
    opening = Opening(
        str(model.absolute()),
        config=absolute(config),
        order=order,
        tokenizer=absolute(tokenizer),
        dtype=dtype,
        quantize=quantize,
        backend=backend,
    )
    generate_texts(opening, request, tp)


def absolute(path: Path | None) -> str | None:
    """The path as ranks can be given it."""
    return None if path is None else str(path.absolute())


def _prompts(prompts: list[str], file: Path | None, text_field: str) -> list[str]:
    from kitae.errors import DataError, RecipeError
    from kitae.stages.classifying import texts_of

    if bool(prompts) == (file is not None):
        raise RecipeError("give the prompts with --prompt, or a file of them with --file, and not both")
    if file is None:
        return prompts
    found = [document.text for document in texts_of(file, text_field, None)]
    if not found:
        raise DataError(f"--file {file}: there is no prompt in it")
    return found
