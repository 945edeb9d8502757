"""Made-up reviews: a thing, and what was good or bad about it. No person wrote them, and they are no data."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from kitae.recipe.small_inputs import Language, Reviews

ROWS = {"train": 480, "heldout": 120}
_OF_HELDOUT = -3
"""The last so many things are only in held-out reviews, so that none is in both parts."""
_SEEDS = {"train": 3, "heldout": 4}
_FORMS = {"english": "The {thing} {what}. ", "japanese": "この{thing}は{what}。"}
_THINGS = {
    "english": ("book", "kettle", "lamp", "bag", "film", "keyboard", "chair", "camera", "pen", "clock"),
    "japanese": ("本", "鍋", "照明", "鞄", "映画", "時計", "椅子", "写真機", "筆", "傘", "机", "靴"),
}
_SAID = {
    "english": (
        (
            "broke on the first day",
            "is a waste of money",
            "arrived late and dirty",
            "is much too loud",
            "disappoints",
        ),
        (
            "works very well",
            "is a pleasure to use",
            "arrived early and clean",
            "is worth its price",
            "looks great",
        ),
    ),
    "japanese": (
        (
            "すぐに壊れました",
            "期待外れでした",
            "とても使いにくいです",
            "値段の割に悪いです",
            "届くのが遅く残念です",
        ),
        (
            "とても使いやすいです",
            "迅速、丁寧に届きました",
            "期待以上に良かったです",
            "値段の割に満足です",
            "毎日使っています",
        ),
    ),
}
"""By language: what is said of bad things, and of good ones."""
_BETWEEN = {"english": "is neither good nor bad", "japanese": "普通です"}


def sentences(language: Language, kind: int, part: str) -> list[str]:
    """Every sentence of a part about bad (0) or good (1) things, in order."""
    said, things = _SAID[language][kind], _things(language, part)
    return [_FORMS[language].format(thing=thing, what=what) for thing in things for what in said]


def _things(language: Language, part: str) -> tuple[str, ...]:
    return _THINGS[language][_OF_HELDOUT:] if part == "heldout" else _THINGS[language][:_OF_HELDOUT]


def rows(wanted: Reviews, part: str) -> Iterator[dict[str, str]]:
    """Rows of a part, classes in turn; of each label, and of those that the recipe drops, some."""
    draw = random.Random(_SEEDS[part])
    kinds = [*range(len(wanted.classes)), *([None] if wanted.dropped else [])]
    for number in range(ROWS[part]):
        kind = kinds[number % len(kinds)]
        labels = wanted.dropped if kind is None else wanted.classes[kind]
        text = _text(wanted.language, kind, part, draw)
        pair = (
            {} if wanted.pair_field is None else {wanted.pair_field: _text(wanted.language, kind, part, draw)}
        )
        yield {wanted.text_field: text, **pair, wanted.label_field: draw.choice(labels)}


def _text(language: Language, kind: int | None, part: str, draw: random.Random) -> str:
    """Two sentences; of more than two classes, with the number of theirs."""
    if kind is None:
        return _FORMS[language].format(thing=draw.choice(_things(language, part)), what=_BETWEEN[language])
    both = draw.sample(sentences(language, kind % 2, part), 2)
    return "".join([*([f"{kind} "] if kind > 1 else []), *both]).strip()


def as_lines(wanted: Reviews, part: str) -> bytes:
    """The rows as JSON lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows(wanted, part)).encode()
