import pytest

from kitae.data.added_tokens import AddedToken, AddedTokens, added_token


def split(text, *tokens):
    return [(part.text, part.token.id if part.token else None) for part in AddedTokens(tokens).split(text)]


MASK, LONG = AddedToken("[M]", 4), AddedToken("[M]a", 5)


def test_tokens_are_taken_out_of_the_text():
    assert split("ab[M]c[M]", MASK) == [("ab", None), ("[M]", 4), ("c", None), ("[M]", 4)]
    assert split("", MASK) == []
    assert split("[M][M]", MASK) == [("[M]", 4), ("[M]", 4)]


def test_the_longest_of_those_that_begin_first():
    assert split("x[M]ab", MASK, LONG) == [("x", None), ("[M]a", 5), ("b", None)]


def test_no_tokens_at_all():
    assert split("a[M]") == [("a[M]", None)]


def test_signs_of_patterns_are_plain_text():
    assert split("a.b", AddedToken(".", 7)) == [("a", None), (".", 7), ("b", None)]


@pytest.mark.parametrize(
    ("settings", "text", "expected"),
    [
        ({"lstrip": True}, "a [M] b", [("a", None), ("[M]", 4), (" b", None)]),
        ({"rstrip": True}, "a [M] b", [("a ", None), ("[M]", 4), ("b", None)]),
        ({"single_word": True}, "a[M] b", [("a[M]", None), (" b", None)]),
        ({"single_word": True}, "a [M]b", [("a ", None), ("[M]b", None)]),
        ({"single_word": True}, "a [M] b", [("a ", None), ("[M]", 4), (" b", None)]),
        ({}, "a [M] b", [("a ", None), ("[M]", 4), (" b", None)]),
    ],
)
def test_what_a_token_asks_of_its_surroundings(settings, text, expected):
    assert split(text, added_token("[M]", 4, settings)) == expected


def test_a_token_by_its_entry_in_the_files():
    assert added_token("x", 9, {"special": False, "normalized": True}) == AddedToken("x", 9, special=False)
    assert added_token("x", 9, {}).special
