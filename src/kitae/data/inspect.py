"""A look at prepared data as the model gets it; of packed text ids, tokens, targets, positions, segments."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kitae.data.card import read_card
from kitae.data.inspect_encoder import encoder_text, encoder_views
from kitae.data.packed import PackedData, Span
from kitae.data.prepare import CAUSAL, PREPARATIONS, objective_of, summary
from kitae.data.rows import labels_by_length
from kitae.data.tokenizer import TextTokenizer
from kitae.errors import DataError


@dataclass(frozen=True)
class RowView:
    """One row; every list has one entry a position."""

    row: int
    ids: list[int]
    tokens: list[str]
    """As the vocabulary spells them."""
    pieces: list[str]
    """Each token decoded on its own; a part of a character comes out as U+FFFD."""
    targets: list[int]
    """What each position must predict; -100 where there is nothing."""
    labels: list[int]
    """The unshifted labels of Hugging Face; -100 in padding."""
    positions: list[int]
    segments: list[int]
    """1, 2, .. for documents that do not see each other; 0 for padding."""
    documents: list[Span]
    texts: list[str]
    """The text of each of `documents` in this row."""


def inspect_rows(
    packed: PackedData, tokenizer: TextTokenizer, rows: Sequence[int], epoch: int = 0
) -> list[RowView]:
    """Views of the rows with these numbers, the same in every epoch; raises `DataError`."""
    for row in rows:
        if not 0 <= row < len(packed):
            raise DataError(f"row {row}: there are rows 0 to {len(packed) - 1} in {packed.folder}")
    return [_view(packed, tokenizer, row) for row in rows]


def _view(packed: PackedData, tokenizer: TextTokenizer, row: int) -> RowView:
    data, spans = packed.rows([row]), packed.spans(row)
    ids: list[int] = data.input_ids[0].tolist()
    lengths = (data.segment_ids > 0).sum(axis=1)
    real = int(lengths[0])
    return RowView(
        row=row,
        ids=ids,
        tokens=[tokenizer.token(token) for token in ids[:real]] + ["(padding)"] * (len(ids) - real),
        pieces=[tokenizer.decode([token]) for token in ids[:real]] + [""] * (len(ids) - real),
        targets=data.targets[0].tolist(),
        labels=labels_by_length(data.input_ids, lengths)[0].tolist(),
        positions=data.position_ids[0].tolist(),
        segments=data.segment_ids[0].tolist(),
        documents=spans,
        texts=[tokenizer.decode(ids[span.start : span.end]) for span in spans],
    )


def render(
    folder: Path,
    tokenizer: Any,
    rows: Sequence[int],
    *,
    split: str = "train",
    epoch: int = 0,
    as_json: bool = False,
    card: bool = True,
) -> str:
    """The card and chosen rows of a prepared folder, as text for people or as JSON; raises `DataError`.

    `tokenizer` is that of the objective: a `TextTokenizer`, or a `WordTokenizer` for an encoder. `epoch` says
    whose masks are shown, where they change.
    """
    content = read_card(folder)
    if split not in content["splits"]:
        raise DataError(f"{folder}: there is no split {split!r}; there are {', '.join(content['splits'])}")
    objective = objective_of(content)
    look = LOOKS[objective]
    examples = PREPARATIONS[objective].open(folder / split, content["tokenizer"]["embedding_rows"])
    views = look.views(examples, tokenizer, rows, epoch)
    if as_json:
        shown = {"card": content} if card else {}
        return json.dumps({**shown, "rows": [asdict(view) for view in views]}, indent=2, ensure_ascii=False)
    blocks = [_card_text(content)] if card else []
    return "\n\n".join([*blocks, *(look.text(view, split) for view in views)])


def _card_text(card: dict[str, Any]) -> str:
    tokenizer = card["tokenizer"]
    options = ", ".join(f"{name} {value}" for name, value in card["options"].items() if value is not None)
    read = [
        f"{name} source {source.get('path') or source.get('hub')}: {source['documents']:,} documents, "
        f"{source['blank_lines']:,} blank lines, {source['bad_lines']:,} bad lines"
        for name, group in card["sources"].items()
        for source in group["from"]
    ]
    head = [
        f"data {card['key']}",
        f"tokenizer {tokenizer['fingerprint'][:16]}, {tokenizer['vocab_size']:,} ids{_ends(tokenizer)}",
        f"options: {options}",
    ]
    return "\n".join([*head, *read, *summary(card)])


def _ends(tokenizer: dict[str, Any]) -> str:
    """What is put around each document, where that is for the recipe to say; else the dictionary, if any."""
    if "before_each_document" not in tokenizer:
        return f"; dictionary {tokenizer['dictionary_version']}" if "dictionary_version" in tokenizer else ""
    before, behind = (
        [text for _, text in tokenizer[f"{name}_each_document"]] or "nothing" for name in ("before", "behind")
    )
    return f"; before each document {before}, behind it {behind}"


def _row_text(view: RowView, split: str) -> str:
    head = [f"{split} row {view.row}: {sum(segment > 0 for segment in view.segments)} tokens"]
    for span, text in zip(view.documents, view.texts, strict=True):
        head.append(
            f"  {span.start}-{span.end - 1}: document {span.document} from its token {span.offset}: {text!r}"
        )
    title = f"{'place':>6} {'id':>7} {'target':>7} {'label':>7} {'pos':>6} {'seg':>4}  token, text"
    return "\n".join([*head, title, *(_line(view, place) for place in range(len(view.ids)))])


def _line(view: RowView, place: int) -> str:
    numbers = (view.ids, view.targets, view.labels, view.positions, view.segments)
    columns = zip(numbers, (7, 7, 7, 6, 4), strict=True)
    token, piece = view.tokens[place], view.pieces[place]
    text = token if piece in (token, "") or "\ufffd" in piece else f"{token}  {piece!r}"
    return (
        " ".join([f"{place:>6}", *(f"{values[place]:>{width}}" for values, width in columns)]) + f"  {text}"
    )


@dataclass(frozen=True)
class Look:
    """How rows of an objective are looked at."""

    views: Callable[[Any, Any, Sequence[int], int], list[Any]]
    """Views of rows of `Examples`, by their numbers, as an epoch reads them."""
    text: Callable[[Any, str], str]
    """A view of a split for people."""


LOOKS: dict[str, Look] = {
    CAUSAL: Look(inspect_rows, _row_text),
    "masked-lm": Look(encoder_views, encoder_text),
    "classification": Look(encoder_views, encoder_text),
}
"""By objective."""
