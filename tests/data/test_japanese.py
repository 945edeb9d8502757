import json
import pickle
import random
import unicodedata

import numpy as np
import pytest
from japanese_case import SUBWORDS, golden, write_japanese
from transformers import AutoTokenizer

from kitae.data.japanese import JapaneseTokenizer
from kitae.data.tokenizer import TextTokenizer
from kitae.data.word_tokenizer import load_tokenizer
from kitae.errors import DataError

GOLDEN = golden()
DICTIONARIES = ("unidic_lite", "ipadic")
VOICED = "がぎぐげござじずぜぞだぢづでどばびぶべぼぱぴぷぺぽ"
UNVOICED = "かきくけこさしすせそたちつてとはひふへほはひふへほ"
ODD = [
    *"がｶﾞﾊﾟ㍻︰\u3000 \n\r\t\x0b\x1c\xa0\u200b\u3099\u309aA１ｱ①Ａé\u0301😀𠮷髙",
    *("[MASK]", "[SEP]", " [UNK]", "今日", "東京", "です"),
]


@pytest.fixture(scope="module")
def japanese(tmp_path_factory):
    return load_tokenizer(write_japanese(tmp_path_factory.mktemp("ipadic")))


@pytest.mark.parametrize("kind", SUBWORDS)
@pytest.mark.parametrize("dictionary", DICTIONARIES)
def test_golden_ids_of_fifty_sentences(tmp_path, dictionary, kind):
    """Case 27: the ids that transformers' own class gave."""
    tokenizer = load_tokenizer(write_japanese(tmp_path, dictionary, kind))
    assert isinstance(tokenizer, JapaneseTokenizer)
    assert len(GOLDEN["sentences"]) == 50
    found = tokenizer.encode_batch(GOLDEN["sentences"])
    assert [ids.tolist() for ids in found] == GOLDEN[dictionary][kind]
    assert found[0].dtype == np.uint32


@pytest.mark.parametrize("kind", SUBWORDS)
def test_ids_of_odd_texts_are_those_of_the_installed_transformers(tmp_path, kind):
    folder = write_japanese(tmp_path, "unidic_lite", kind)
    stock, tokenizer = AutoTokenizer.from_pretrained(folder), load_tokenizer(folder)
    draw = random.Random(0)
    texts = ["".join(draw.choices(ODD, k=draw.randint(0, 12))) for _ in range(300)]
    if kind == "wordpiece-lower":  # older versions lower a text before MeCab sees it
        texts = [text.lower() for text in texts]
    expected = [stock(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert [ids.tolist() for ids in tokenizer.encode_batch(texts)] == expected


def test_voiced_kana_stay_voiced(japanese):
    """T32 and case 28: each has an id of its own, which decodes to it; none loses its mark."""
    for voiced, plain in zip(VOICED, UNVOICED, strict=True):
        (ids,), (others,) = japanese.encode_batch([voiced]), japanese.encode_batch([plain])
        assert ids.tolist() != others.tolist()
        assert japanese.decode(ids) == voiced
        assert japanese.encode_batch([unicodedata.normalize("NFD", voiced)])[0].tolist() == ids.tolist()


@pytest.mark.parametrize(
    ("text", "same"),
    [("ｶﾞ", "\u30ac"), ("Ａ", "A"), ("㍻", "\u5e73\u6210"), ("\ufe30", ".."), ("日\u3000本", "日 本")],
)
def test_compatibility_characters_as_nfkc_has_them(japanese, text, same):
    """T33: half-width ka with its mark, full-width A, era sign, two-dot leader, ideographic space."""
    assert japanese.surfaces(text) == japanese.surfaces(same)
    one, other = japanese.encode_batch([text, same])
    assert one.tolist() == other.tolist()
    assert len(one)


def test_newlines_at_both_ends_change_no_id(japanese):
    """T36."""
    texts = ["今日は晴れ。", "\n今日は晴れ。\n", "\r\n今日は晴れ。\r\n", "\n\n今日は\n晴れ。"]
    ids = [found.tolist() for found in japanese.encode_batch(texts)]
    assert ids[0] == ids[1] == ids[2] == ids[3]
    assert [len(found) for found in japanese.encode_batch(["", "\n", " \u3000"])] == [0, 0, 0]


@pytest.mark.parametrize("kind", SUBWORDS)
def test_words_are_those_of_mecab(tmp_path, kind):
    """T37: the pieces of one word belong together, with marks or without."""
    tokenizer = load_tokenizer(write_japanese(tmp_path, kind=kind))
    for text in GOLDEN["sentences"]:
        ids, starts = tokenizer.words_batch([text])[0]
        assert ids.tolist() == tokenizer.encode_batch([text])[0].tolist()
        surfaces = [surface for surface in tokenizer.surfaces(text) if surface.strip() or kind == "character"]
        assert starts.sum() == len(surfaces)
        words = np.split(ids, np.flatnonzero(starts)[1:]) if len(ids) else []
        for word, surface in zip(words, surfaces, strict=True):
            if tokenizer.special.unk not in word:
                shown = "".join(tokenizer.token(int(token)).removeprefix("##") for token in word)
                assert shown in (surface, surface.lower())


def test_every_token_is_found_in_the_text(japanese):
    for text in GOLDEN["sentences"]:
        (ids,) = japanese.encode_batch([text])
        spans = japanese.offsets(text)
        assert len(spans) == len(ids)
        for token, (start, end) in zip(ids, spans, strict=True):
            piece = japanese.token(int(token)).removeprefix("##")
            shown = unicodedata.normalize("NFKC", text[start:end])
            assert 0 <= start < end <= len(text)
            assert piece == "[UNK]" or piece in shown


def test_offsets_reach_across_what_nfkc_changes(japanese):
    text = "ﾊﾟﾝと\u3000㍻"
    surfaces = japanese.surfaces(text)
    assert surfaces[:2] == ["パン", "と"]
    spans = japanese.offsets(text)
    assert spans[0][0] == 0
    assert {text[start:end] for start, end in spans if start >= 5} == {"㍻"}


def test_added_tokens_of_the_files_are_taken_whole(tmp_path):
    added = {"3065": {"content": "[新語]", "special": False, "lstrip": True}}
    folder = write_japanese(tmp_path, added_tokens_decoder=added)
    stock, tokenizer = AutoTokenizer.from_pretrained(folder), load_tokenizer(folder)
    text = "これは [新語] です[新語]。"
    expected = stock(text, add_special_tokens=False)["input_ids"]
    ids, starts = tokenizer.words_batch([text])[0]
    assert ids.tolist() == expected
    assert starts[ids.tolist().index(3065)]
    assert 3065 not in tokenizer.special.all
    assert tokenizer.token(3065) == "[新語]"


def test_special_ids_and_vocabulary(japanese):
    special = japanese.special
    assert (special.pad, special.unk, special.cls, special.sep, special.mask) == (0, 1, 2, 3, 4)
    assert special.all == frozenset(range(5))
    assert japanese.vocab_size == 3065
    assert japanese.token(3065) == "<no token 3065>"


def test_a_copy_for_another_process_cuts_alike(japanese):
    japanese.encode_batch(["MeCab läuft"])
    copy = pickle.loads(pickle.dumps(japanese))
    assert copy.fingerprint == japanese.fingerprint
    assert copy.encode_batch(GOLDEN["sentences"])[7].tolist() == GOLDEN["ipadic"]["wordpiece"][7]


def test_texts_that_are_no_unicode(japanese):
    with pytest.raises(DataError, match="not valid Unicode; give UTF-8"):
        japanese.encode_batch(["今日 \udcff"])


def test_the_fingerprint_sees_files_and_dictionary(tmp_path, japanese):
    same = load_tokenizer(write_japanese(tmp_path / "same"))
    assert same.fingerprint == japanese.fingerprint
    lower = load_tokenizer(write_japanese(tmp_path / "lower", do_lower_case=True))
    assert lower.fingerprint != japanese.fingerprint
    silent = write_japanese(tmp_path / "silent", mecab_kwargs=None)
    marks = {load_tokenizer(silent, dictionary).fingerprint for dictionary in DICTIONARIES}
    assert len(marks) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"word_tokenizer_type": "sudachi"}, r"words are cut by 'sudachi' .* kitae reads mecab"),
        ({"subword_tokenizer_type": "sentencepiece"}, r"cut by 'sentencepiece' .* wordpiece and character"),
        ({"do_subword_tokenize": False}, r"do_word_tokenize and do_subword_tokenize true"),
        ({"unk_token": "<nowhere>"}, r"lacks a token for: unk"),
    ],
)
def test_what_is_not_read_is_named(tmp_path, settings, message):
    with pytest.raises(DataError, match=message):
        load_tokenizer(write_japanese(tmp_path, **settings))


def test_a_vocabulary_that_is_missing_or_empty(tmp_path):
    folder = write_japanese(tmp_path)
    (folder / "vocab.txt").write_text("")
    with pytest.raises(DataError, match=r"vocab\.txt: the tokenizer's vocabulary is empty"):
        load_tokenizer(folder)
    (folder / "vocab.txt").unlink()
    with pytest.raises(DataError, match=r"vocab\.txt: cannot be read"):
        load_tokenizer(folder)


def test_packed_text_says_that_it_needs_another_tokenizer(tmp_path):
    with pytest.raises(
        DataError, match=r"cuts words with MeCab, which is for encoders \(objective masked-lm or"
    ):
        TextTokenizer.load(write_japanese(tmp_path))


def test_older_folders_name_their_class_in_the_models_configuration(tmp_path):
    folder = write_japanese(tmp_path)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    del settings["tokenizer_class"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"tokenizer_class": "BertJapaneseTokenizer"}))
    assert isinstance(load_tokenizer(folder), JapaneseTokenizer)
