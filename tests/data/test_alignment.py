from unicodedata import normalize

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kitae.data.alignment import aligned


def spans_of(text, surfaces, lengths=None, normalised=True):
    lengths = lengths or [[len(surface)] for surface in surfaces]
    return aligned(text, surfaces, lengths, normalised=normalised)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
@example("a\u0334\u0301")
@example("q\u0307\u0323")
@example("か\u3099は\u309aｶﾞﾊﾟ㍻︰")
@example("\u1100\u1161\u11a8")
@settings(deadline=None, max_examples=300)
def test_every_character_of_the_normalised_text_has_its_place(text):
    shown = normalize("NFKC", text)
    spans = spans_of(text, list(shown))
    assert len(spans) == len(shown)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert spans == sorted(spans)
    clusters = dict.fromkeys(spans)
    assert "".join(normalize("NFKC", text[start:end]) for start, end in clusters) == shown


@pytest.mark.parametrize(
    ("text", "surfaces", "expected"),
    [
        ("ﾊﾟﾝを 買う", ["パン", "を", "買う"], [(0, 3), (3, 4), (5, 7)]),
        ("㍻の", ["平成", "の"], [(0, 1), (1, 2)]),
        ("か\u3099く", ["が", "く"], [(0, 2), (2, 3)]),
        ("ああ", ["あ", "あ"], [(0, 1), (1, 2)]),
        ("", [], []),
    ],
)
def test_words_in_a_text_that_was_normalised(text, surfaces, expected):
    assert spans_of(text, surfaces) == expected


def test_pieces_of_a_word():
    assert spans_of("電池が", ["電池", "が"], [[1, 1], [1]]) == [(0, 1), (1, 2), (2, 3)]


def test_pieces_that_do_not_add_up_have_the_whole_word():
    assert spans_of("İx", ["İx"], [[2, 1]], normalised=False) == [(0, 2), (0, 2)]
    assert spans_of("ab", ["ab"], [[2, 0]]) == [(0, 2), (0, 2)]
