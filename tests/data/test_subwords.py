from kitae.data import subwords
from kitae.data.subwords import SUBWORDS, WordIds

VOCABULARY = {"un": 1, "##want": 2, "##ed": 3, "unw": 4, "a": 5, "##a": 6, "ア": 7}


def test_longest_pieces_first():
    cut = SUBWORDS["wordpiece"](VOCABULARY, 0)
    assert cut("unwanted") == [0]  # `unw` is taken first, and nothing begins with `##anted`
    del_longer = {token: number for token, number in VOCABULARY.items() if token != "unw"}
    assert SUBWORDS["wordpiece"](del_longer, 0)("unwanted") == [1, 2, 3]
    assert cut("aaa") == [5, 6, 6]


def test_blanks_in_a_word_separate_words():
    cut = SUBWORDS["wordpiece"](VOCABULARY, 0)
    assert cut("a a") == [5, 5]
    assert cut(" \t") == []


def test_a_word_of_more_than_a_hundred_letters_is_unknown():
    cut = SUBWORDS["wordpiece"](VOCABULARY, 0)
    assert len(cut("a" * 100)) == 100
    assert cut("a" * 101) == [0]


def test_characters_are_normalised():
    assert SUBWORDS["character"](VOCABULARY, 0)("aｱz") == [5, 7, 0]


def test_words_are_cut_once_and_forgotten_when_there_are_too_many(monkeypatch):
    calls = []
    words = WordIds(lambda word: calls.append(word) or [len(word)])
    assert [words["ab"], words["ab"], words["c"]] == [[2], [2], [1]]
    assert calls == ["ab", "c"]
    monkeypatch.setattr(subwords, "REMEMBERED_WORDS", 2)
    assert words["def"] == [3]
    assert list(words) == ["def"]
