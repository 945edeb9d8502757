import json
import pickle

import numpy as np
import pytest
from tiny_tokenizer import SENTENCES, write_tokenizer
from tiny_wordpiece import IDS, SPECIAL, wordpiece_backend, write_wordpiece
from transformers import AutoTokenizer

from kitae.data.word_tokenizer import load_tokenizer
from kitae.errors import DataError

TEXT = "The unwanted book. isn't [SEP] a £ bad film"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_wordpiece(tmp_path_factory.mktemp("wordpiece"))


@pytest.fixture(scope="module")
def words(folder):
    return load_tokenizer(folder)


def test_ids_are_those_of_transformers(words, folder):
    stock = AutoTokenizer.from_pretrained(folder)
    texts = [TEXT, "", "   ", "very good."]
    expected = [stock(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert [ids.tolist() for ids in words.encode_batch(texts)] == expected
    assert [found.ids.tolist() for found in words.words_batch(texts)] == expected
    assert words.encode_batch(texts)[0].dtype == np.uint32
    assert [words.token(token) for token in expected[3]] == ["very", "good", "."]
    assert words.decode([IDS["[CLS]"], *expected[3]]) == "[CLS] very good ."


def test_pieces_of_one_word_belong_together(words):
    """T37: A, ##B, C with the words AB and C."""
    ids, starts = words.words_batch(["unwanted film"])[0]
    assert [words.token(token) for token in ids] == ["un", "##want", "##ed", "film"]
    assert starts.tolist() == [True, False, False, True]
    assert starts.dtype == np.bool_


def test_every_word_mark_and_special_token_is_a_word(words):
    ids, starts = words.words_batch([TEXT])[0]
    tokens = [words.token(token) for token in ids]
    assert starts.tolist() == [not token.startswith("##") for token in tokens]
    assert "[SEP]" in tokens
    assert "[UNK]" in tokens
    assert [len(found.starts) for found in words.words_batch(["", " "])] == [0, 0]


def test_words_of_a_tokenizer_without_continuation_marks(tokenizer_folder):
    """A byte-level vocabulary marks the beginning of words, not their insides."""
    bytes_level = load_tokenizer(tokenizer_folder)
    for ids, starts in bytes_level.words_batch(SENTENCES):
        words = np.split(ids, np.flatnonzero(starts)[1:])
        texts = [bytes_level.decode(word.tolist()) for word in words]
        assert all(" " not in text.strip() for text in texts if "\ufffd" not in text)


def test_special_ids_as_bert_spells_them_where_nothing_is_said(words):
    special = words.special
    found = [special.pad, special.unk, special.cls, special.sep, special.mask]
    assert found == [0, 1, 2, 3, 4]
    assert special.all == frozenset(range(len(SPECIAL)))
    assert special.need("cls", "mask") == (2, 4)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"cls_token": "good", "sep_token": {"content": "bad"}}, (IDS["good"], IDS["bad"])),
        ({"cls_token": None, "sep_token": "<nowhere>"}, (None, None)),
    ],
)
def test_special_ids_as_the_files_say(tmp_path, settings, expected):
    special = load_tokenizer(write_wordpiece(tmp_path, settings)).special
    assert (special.cls, special.sep) == expected
    assert special.all >= {token for token in expected if token is not None}


def test_the_configuration_goes_before_the_map(tmp_path):
    folder = write_wordpiece(tmp_path, {"cls_token": "good"})
    (folder / "special_tokens_map.json").write_text(json.dumps({"cls_token": "bad", "pad_token": "film"}))
    special = load_tokenizer(folder).special
    assert (special.cls, special.pad) == (IDS["good"], IDS["film"])


def test_a_token_that_lacks_is_named(tokenizer_folder):
    special = load_tokenizer(tokenizer_folder).special
    assert special.cls is None
    with pytest.raises(
        DataError, match=r"lacks a token for: cls \(\[CLS\]\), mask \(\[MASK\]\); name another"
    ):
        special.need("cls", "mask")
    assert special.need() == ()


def test_special_tokens_without_a_role_count_too(tmp_path):
    backend = wordpiece_backend()
    backend.add_special_tokens(["[EXTRA]"])
    special = load_tokenizer(write_tokenizer(tmp_path, backend.to_str(), {})).special
    assert special.all == frozenset({*range(5), backend.token_to_id("[EXTRA]")})


def test_a_copy_for_another_process_is_the_same(words):
    copy = pickle.loads(pickle.dumps(words))
    assert (copy.special, copy.fingerprint, copy.vocab_size) == (
        words.special,
        words.fingerprint,
        words.vocab_size,
    )
    for one, other in zip(copy.words_batch([TEXT]), words.words_batch([TEXT]), strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert one.starts.tolist() == other.starts.tolist()


def test_a_dictionary_where_none_is_used(folder):
    with pytest.raises(DataError, match=r"dictionary is ipadic, but this tokenizer uses no dictionary"):
        load_tokenizer(folder, "ipadic")
