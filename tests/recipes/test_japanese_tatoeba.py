"""Sentences: which are held out, and what their weak labels are."""

from __future__ import annotations

import json
from pathlib import Path

from tatoeba import (
    Labelled,
    Sentence,
    balanced,
    label,
    one_a_meaning,
    plain,
    read_sentences,
    share_out,
)


def sentences(count: int) -> list[Sentence]:
    """Three Japanese ones for each English one; every fifth English one is missing."""
    return [
        Sentence(number, f"文{number}。", None if number // 3 % 5 == 0 else f"Sentence {number // 3}.")
        for number in range(count)
    ]


def test_the_file_has_tabs_and_dashes(tmp_path: Path):
    path = tmp_path / "SENTENCES"
    path.write_text("12\t鍛える。\tTo forge.\t-\t-\t-\t-\t-\t-\n13\t走る。\t-\t-\t-\t-\t-\t-\t-\n", "utf-8")
    assert read_sentences(path) == [Sentence(12, "鍛える。", "To forge."), Sentence(13, "走る。", None)]


def test_what_an_english_sentence_says_is_in_one_part_alone():
    parts = share_out(sentences(6000))
    assert 0.03 < len(parts.heldout) / 6000 < 0.07
    held = {plain(one.english) for one in parts.heldout if one.english}
    assert held
    assert not held & {plain(one.english) for one in parts.train if one.english}


def test_a_copy_of_a_heldout_sentence_is_not_trained_on():
    """Another translation, other punctuation, half width: the same sentence all the same."""
    base = sentences(3000)
    held = share_out(base).heldout
    copies = [Sentence(10_000 + n, f" {one.text[:-1]}！", f"Copy {n}") for n, one in enumerate(held)]
    parts = share_out([*base, *copies])
    known = {plain(one.text) for one in parts.heldout}
    assert not [one for one in parts.train if plain(one.text) in known]


def test_the_parts_do_not_depend_on_the_order_of_the_file():
    assert share_out(sentences(500)) == share_out(reversed(sentences(500)))


def test_only_clear_scores_make_labels():
    scores = {"good": 0.5, "meh": 0.49, "bad": -0.9}
    given = [Sentence(number, "文", english) for number, english in enumerate([*scores, None])]
    labelled = label(given, lambda text: scores[text])
    assert [(one.sentence.english, one.label) for one in labelled] == [
        ("good", "positive"),
        ("bad", "negative"),
    ]
    assert json.loads(labelled[1].line()) == {
        "text": "文",
        "label": "negative",
        "score": -0.9,
        "tatoeba_id": 2,
    }


def test_labels_are_balanced_and_meanings_are_counted_once():
    given = [Labelled(Sentence(n, f"文{n}", f"E {n // 2}"), 1.0 if n % 6 else -1.0) for n in range(60)]
    assert [one.sentence.number for one in one_a_meaning(given)] == list(range(0, 60, 2))
    even = balanced(given)
    assert len(even) == 20
    assert sum(one.score > 0 for one in even) == 10
    assert len(balanced(given, 3)) == 6
