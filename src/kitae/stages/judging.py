"""Perplexity of weights of any format on any text, in fp32 or bf16, and what int8 costs."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kitae.errors import DataError, RecipeError, StoppedError
from kitae.stages.text_model import Opening, TextModel, check_cut, open_text_model, text_launch

if TYPE_CHECKING:
    from kitae.generate.judge import Piece
    from kitae.parallel.mesh import Mesh

LONGEST = 2048
"""Tokens that are seen before one at most, where nothing else is said and the model has more positions."""


@dataclass(frozen=True)
class Text:
    """What to judge by; values of JSON."""

    path: str
    document: Literal["file", "line", "paragraph"] = "file"
    """What one document of a text file is."""
    text_field: str = "text"
    sequence_length: int | None = None
    """Tokens that are run together; longer documents are judged in pieces."""


def judge_text(opening: Opening, text: Text, tp_size: int = 1) -> dict[str, Any]:
    """Loss, perplexity and bits per byte; with int8 also those without it, and what it costs.

    Raises `DataError` for text that cannot be read or has nothing to predict, `WeightsError` for the model.
    """
    if tp_size > 1:
        check_cut(opening, tp_size)
    found = _in_ranks(opening, text, tp_size) if tp_size > 1 else measured(opening, text)
    if opening.quantize == "none":
        return found
    plain = replace(opening, quantize="none")
    exact = _in_ranks(plain, text, tp_size) if tp_size > 1 else measured(plain, text)
    return {**found, **cost(found, exact)}


def cost(found: Mapping[str, Any], exact: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of int8 beside its own numbers."""
    share = found["perplexity"] / exact["perplexity"] - 1
    return {"unquantised": dict(exact), "perplexity_cost": share}


def _in_ranks(opening: Opening, text: Text, tp_size: int) -> dict[str, Any]:
    from kitae.launch.local import launch_ranks

    with tempfile.TemporaryDirectory(prefix="kitae-eval-") as folder:
        launch = text_launch(opening, tp_size, Path(folder), "eval", "stopping after this batch")
        result = Path(folder) / "result.json"
        arguments = {"opening": asdict(opening), "text": asdict(text), "result": str(result)}
        try:
            launch_ranks(f"{__name__}:{judge_rank.__name__}", arguments, launch)
        except StoppedError:
            raise KeyboardInterrupt from None
        found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return found


def judge_rank(mesh: Mesh, opening: dict[str, Any], text: dict[str, Any], result: str) -> None:
    """The work of one tensor-parallel rank; the first one leaves the result."""
    from kitae.train.signals import StopRequested, StopSignals

    try:
        with StopSignals(mesh.control) as stops:
            found = measured(Opening(**opening), Text(**text), mesh, stops.check)
    except StopRequested:
        raise KeyboardInterrupt from None
    if mesh.leads:
        Path(result).write_text(json.dumps(found), encoding="utf-8")


def measured(
    opening: Opening, text: Text, mesh: Mesh | None = None, check: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Judge all documents of a text."""
    from kitae.generate.judge import judge, pieces_of

    model = open_text_model(opening, mesh)
    length = _length(text, model)
    counts = {"documents": 0, "bytes": 0}

    def pieces() -> Iterator[Piece]:
        for document, ids in _documents(text, model):
            counts["documents"] += 1
            counts["bytes"] += len(document.encode())
            yield from pieces_of(ids, length)

    nats, tokens = 0.0, 0
    for one in judge(model.network, pieces(), check):
        nats += one.nats
        tokens += one.tokens
    if not tokens:
        raise DataError(f"--data {text.path}: there is nothing to predict in it; give longer documents")
    return {
        **numbers(nats, tokens),
        "bits_per_byte": nats / math.log(2) / counts["bytes"],
        **counts,
        "sequence_length": length,
        "weights": model.title,
        "quantize": opening.quantize,
    }


def numbers(nats: float, tokens: int) -> dict[str, Any]:
    """What a sum of losses means."""
    loss = nats / tokens
    return {"loss": loss, "perplexity": math.exp(min(loss, 700.0)), "tokens": tokens}


def _length(text: Text, model: TextModel) -> int:
    most = model.network.config.max_position_embeddings
    if text.sequence_length is not None and not 1 <= text.sequence_length <= most:
        raise RecipeError(
            f"--sequence-length: {text.sequence_length} where the model has {most} positions; choose 1 to "
            f"{most}"
        )
    return text.sequence_length or min(most, LONGEST)


def _documents(text: Text, model: TextModel) -> Iterator[tuple[str, list[int]]]:
    """Text and ids of each document, begun as the tokenizer begins texts. Raises `DataError`."""
    from kitae.data.formats import format_of
    from kitae.data.sources import open_source
    from kitae.data.special import check_token
    from kitae.recipe.sources import SourceConfig
    from kitae.stages.classifying import documents_of

    tokenizer, rows = model.words.tokenizer, model.network.config.vocab_size
    begin = [tokenizer.bos_id] if tokenizer.adds_bos and tokenizer.bos_id is not None else []
    path = Path(text.path).absolute()
    # A file that somebody names is text, whatever its ending.
    plain = path.is_file() and format_of(path) is None
    config = SourceConfig(
        path=str(path),
        format="text" if plain else "auto",
        document=text.document,
        text_field=text.text_field,
    )
    for document in documents_of(open_source(config, Path.cwd(), [])):
        ids = [*begin, *tokenizer.encode(document.text)]
        for token in ids:
            if token >= rows:
                check_token(token, tokenizer.token(token), document.where, rows)
        yield document.text, ids


def judge_rows(opening: Opening, rows: Iterable[Any], mesh: Mesh | None = None) -> dict[str, Any]:
    """The same of rows that were packed for a training: every run of a document in a row is judged alone."""
    from kitae.generate.judge import judge

    model = open_text_model(opening, mesh)
    nats, tokens = 0.0, 0
    for one in judge(model.network, (piece for row in rows for piece in _row_pieces(row))):
        nats += one.nats
        tokens += one.tokens
    return numbers(nats, tokens)


def _row_pieces(row: Any) -> Iterator[Piece]:
    from kitae.generate.judge import Piece

    for ids, segments in zip(row.input_ids, row.segment_ids, strict=True):
        for segment in range(1, int(segments.max(initial=0)) + 1):
            own = ids[segments == segment].tolist()
            if len(own) > 1:
                yield Piece(own, len(own) - 1)


def judged_lines(found: Mapping[str, Any]) -> list[str]:
    """What was found, for a person."""
    lines = [_line(found)]
    if "unquantised" in found:
        lines.append(f"without int8: {_line(found['unquantised'])}")
        lines.append(f"int8 costs {100 * found['perplexity_cost']:+.2f} % of perplexity")
    return lines


def _line(found: Mapping[str, Any]) -> str:
    """Bits per byte and documents are known of text alone, not of packed rows."""
    parts = [f"loss {found['loss']:.4f} nats/token", f"perplexity {found['perplexity']:.3f}"]
    if "bits_per_byte" in found:
        parts.append(f"{found['bits_per_byte']:.4f} bits/byte")
    parts.append(f"{found['tokens']:,} tokens")
    if "documents" in found:
        parts.append(f"{found['documents']:,} documents of {found['bytes']:,} bytes")
    return ", ".join(parts)
