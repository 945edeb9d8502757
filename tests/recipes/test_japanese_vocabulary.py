"""The vocabulary over MeCab's words."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer
from vocabulary import SPECIAL, common_letters, train_vocabulary, words_of, write_tokenizer

from kitae.data.word_tokenizer import load_tokenizer

TEXTS = [
    "彼は刀を鍛える。",
    "彼女は毎日体を鍛えている。",
    "刀鍛冶は刀を打つ。",
    "日本語を勉強しています。",
    "ｶﾞﾝﾊﾞって勉強する。",
] * 4


def test_words_are_mecabs_after_nfkc():
    assert words_of(["ｶﾞﾝﾊﾞる１０人。"]) == ["ガンバる 10 人 。"]


def test_the_same_text_gives_the_same_pieces_in_the_same_order():
    words = words_of(TEXTS)
    pieces = train_vocabulary(words, 90, 40)
    assert tuple(pieces[:5]) == SPECIAL
    assert len(pieces) == len(set(pieces)) <= 90
    assert all(train_vocabulary(list(reversed(words)), 90, 40) == pieces for _ in range(3))
    assert "鍛える" in pieces


def test_words_with_rare_letters_are_left_out():
    words = [*words_of(TEXTS), "麒麟 麒麟 麒麟 麒麟"]
    pieces = train_vocabulary(words, 200, len({c for one in words_of(TEXTS) for c in one if c != " "}))
    assert not [piece for piece in pieces if "麟" in piece]


def test_of_letters_as_common_the_lower_ones_stay():
    assert common_letters({"ab": 3, "cb": 1, "d": 1}, 3) == {"a", "b", "c"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tokenizer(tmp_path, train_vocabulary(words_of(TEXTS), 90, 60))
    return tmp_path


def test_stock_transformers_and_kitae_load_it_alike(folder: Path):
    theirs, ours = AutoTokenizer.from_pretrained(folder), load_tokenizer(folder)
    assert type(theirs).__name__.startswith("BertJapanese")
    for text in (*TEXTS[:5], "未知の語彙。"):
        assert ours.encode_batch([text])[0].tolist() == theirs(text, add_special_tokens=False)["input_ids"]
    assert ours.special.need("pad", "unk", "cls", "sep", "mask") == (0, 1, 2, 3, 4)
