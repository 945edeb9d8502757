"""A look at rows of an encoder as the model gets them: ids, token types, hidden words, labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kitae.data.examples import Examples, Sample
from kitae.data.labelled_rows import LabelledRows
from kitae.data.masked_rows import MaskedRows
from kitae.data.rows import IGNORED
from kitae.data.word_tokenizer import WordTokenizer
from kitae.errors import DataError

PAIRS = {0: "the second text follows the first", 1: "the second text is from another document"}


@dataclass(frozen=True)
class EncoderView:
    """One row; every list but `texts` has one entry a position."""

    row: int
    label: str | None
    """The label of the text, or what the second text is to the first; None where there is neither."""
    ids: list[int]
    tokens: list[str]
    """As the vocabulary spells them."""
    types: list[int]
    """1 in the second text."""
    targets: list[int]
    """The token that is to be predicted at each position; -100 where there is nothing."""
    hidden: list[str]
    """The tokens of `targets`, empty where there is nothing."""
    ways: list[str]
    """How they are hidden: `masked`, `random` (another token) or `kept`; empty where there is nothing."""
    texts: list[str]
    """The one text or the two, before anything was hidden."""


def encoder_views(
    examples: Examples[LabelledRows | MaskedRows],
    tokenizer: WordTokenizer,
    rows: Sequence[int],
    epoch: int = 0,
) -> list[EncoderView]:
    """Views of the rows with these numbers, as an epoch reads them; raises `DataError`."""
    for row in rows:
        if not 0 <= row < len(examples):
            raise DataError(f"row {row}: there are rows 0 to {len(examples) - 1}")
    return [_view(examples, tokenizer, Sample(row, epoch)) for row in rows]


def _view(examples: Examples[Any], tokenizer: WordTokenizer, sample: Sample) -> EncoderView:
    found: LabelledRows | MaskedRows = examples.read([sample])
    ids: list[int] = found.input_ids[0].tolist()
    real = int(found.lengths[0])
    targets = _targets(found, len(ids))
    return EncoderView(
        row=sample.number,
        label=_label(found, getattr(examples, "classes", ())),
        ids=ids,
        tokens=[tokenizer.token(token) for token in ids[:real]] + ["(padding)"] * (len(ids) - real),
        types=found.token_type_ids[0].tolist(),
        targets=targets,
        hidden=["" if target == IGNORED else tokenizer.token(target) for target in targets],
        ways=[_way(shown, target, tokenizer) for shown, target in zip(ids, targets, strict=True)],
        texts=_texts(found, targets, tokenizer),
    )


def _way(shown: int, target: int, tokenizer: WordTokenizer) -> str:
    if target == IGNORED:
        return ""
    return "kept" if shown == target else "masked" if shown == tokenizer.special.mask else "random"


def _texts(rows: LabelledRows | MaskedRows, targets: list[int], tokenizer: WordTokenizer) -> list[str]:
    """Each text without the special tokens around it."""
    length = int(rows.lengths[0])
    first = int((rows.token_type_ids[0, :length] == 0).sum())
    pairs = zip(rows.input_ids[0].tolist(), targets, strict=True)
    ids = [shown if target == IGNORED else target for shown, target in pairs]
    spans = [(1, first - 1), (first, length - 1)]
    return [tokenizer.decode(ids[start:end]) for start, end in spans if end > start]


def _targets(rows: LabelledRows | MaskedRows, length: int) -> list[int]:
    targets = [IGNORED] * length
    if isinstance(rows, MaskedRows):
        for place, label in zip(rows.positions[0].tolist(), rows.labels[0].tolist(), strict=True):
            if label != IGNORED:
                targets[place] = label
    return targets


def _label(rows: LabelledRows | MaskedRows, classes: Sequence[str]) -> str | None:
    if isinstance(rows, MaskedRows):
        return PAIRS.get(int(rows.next_sentence[0]))
    number = int(rows.labels[0])
    return None if number == IGNORED else classes[number]


def encoder_text(view: EncoderView, split: str) -> str:
    """A view for people."""
    real = sum(token != "(padding)" for token in view.tokens)
    head = f"{split} row {view.row}: {real} tokens" + (f"; {view.label}" if view.label is not None else "")
    title = f"{'place':>6} {'id':>7} {'type':>5} {'target':>7}  token, hidden token"
    texts = [f"  {name}: {text!r}" for name, text in zip("AB", view.texts, strict=False)]
    return "\n".join([head, *texts, title, *(_line(view, place) for place in range(len(view.ids)))])


def _line(view: EncoderView, place: int) -> str:
    numbers = f"{place:>6} {view.ids[place]:>7} {view.types[place]:>5} {view.targets[place]:>7}"
    way = {"": "", "masked": ""}.get(view.ways[place], f" ({view.ways[place]})")
    return f"{numbers}  {view.tokens[place]}  {view.hidden[place]}{way}".rstrip()
