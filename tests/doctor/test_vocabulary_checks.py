import json
import sys

import pytest
from japanese_case import write_japanese
from tiny_tokenizer import train_backend, write_tokenizer
from tiny_wordpiece import write_wordpiece

from kitae.data.dictionary import find_dictionary
from kitae.data.word_tokenizer import load_tokenizer
from kitae.doctor.checks import CHECKS, examine
from kitae.doctor.finding import Finding, Patient
from kitae.doctor.telling_words import telling_words
from kitae.doctor.vocabulary import measure
from kitae.errors import DataError

OTHER = {"ipadic": "unidic_lite", "unidic_lite": "ipadic"}


def patient(folder, **options):
    return Patient(folder, folder, **options)


def findings(folder, check, **options):
    return list(CHECKS[check](patient(folder, **options)))


@pytest.mark.parametrize("dictionary", OTHER)
def test_a_vocabulary_with_its_own_dictionary(tmp_path, dictionary):
    folder = write_japanese(tmp_path, dictionary)
    (found,) = findings(folder, "dictionary of the vocabulary")
    assert found.level == "ok"
    assert f"words that {OTHER[dictionary]} would not make" in found.text
    mine, theirs = telling_words(load_tokenizer(folder), find_dictionary(OTHER[dictionary]))
    assert mine
    assert not theirs


@pytest.mark.parametrize("dictionary", OTHER)
def test_a_vocabulary_that_was_made_with_another_dictionary_is_named(tmp_path, dictionary):
    """Case 27: the pair is wrong, and every id is legal."""
    other = OTHER[dictionary]
    folder = write_japanese(tmp_path, dictionary, mecab_kwargs={"mecab_dic": other})
    (found,) = findings(folder, "dictionary of the vocabulary")
    assert found.level == "fail"
    assert f"words that only {dictionary} makes" in found.text
    assert f"it was made with {dictionary}; take that dictionary" in found.text


def test_one_word_may_be_there_by_chance(tmp_path):
    folder = write_japanese(tmp_path, "unidic_lite", mecab_kwargs={"mecab_dic": "ipadic"})
    vocabulary = (folder / "vocab.txt").read_text().split("\n")
    mine, theirs = telling_words(load_tokenizer(folder), find_dictionary("unidic_lite"))
    kept = [token for token in vocabulary if token not in theirs[1:]]
    (folder / "vocab.txt").write_text("\n".join(kept))
    assert not mine
    assert [one.level for one in findings(folder, "dictionary of the vocabulary")] == []


def test_how_a_text_is_cut(tmp_path):
    found = measure(load_tokenizer(write_wordpiece(tmp_path)), ["the unwanted book £", "", "film"])
    assert (found.words, found.tokens) == (5, 7)
    assert found.whole == pytest.approx(3 / 5)
    assert found.unknown == pytest.approx(1 / 7)
    assert str(found) == "60.0% of 5 words are whole, 1.40 tokens a word, 14.29% unknown tokens"
    assert measure(load_tokenizer(tmp_path), []).words == 0


def test_the_text_of_the_recipe_is_measured(tmp_path):
    folder = write_wordpiece(tmp_path)
    (good,) = findings(folder, "vocabulary", texts=lambda: ["good book"])
    assert (good.level, good.text.endswith("0.00% unknown tokens of the recipe's text")) == ("ok", True)
    (bad,) = findings(folder, "vocabulary", texts=lambda: ["日本 語 book"])
    assert bad.level == "note"
    assert "it was hardly made for such text" in bad.text
    assert findings(folder, "vocabulary") == []


def test_a_probe_text_is_measured_for_a_folder(tmp_path):
    (found,) = findings(write_japanese(tmp_path), "vocabulary")
    assert "unknown tokens of a probe text" in found.text


def test_tokenizer_and_embedding(tmp_path):
    folder = write_wordpiece(tmp_path / "bert")
    plain = write_tokenizer(tmp_path / "plain", train_backend().to_str())
    (found,) = findings(folder, "tokenizer")
    size = load_tokenizer(folder).vocab_size
    assert found.text == f"WordPiece, {size} ids; cls 2, sep 3, pad 0, mask 4, unk 1"
    assert "no special tokens of BERT" in findings(plain, "tokenizer")[0].text
    assert [one.level for one in findings(folder, "embedding", embedding_rows=size)] == ["ok"]
    assert [one.level for one in findings(folder, "embedding", embedding_rows=size - 1)] == ["note"]
    assert findings(folder, "embedding") == []


def test_a_missing_dictionary_is_told_once(tmp_path, monkeypatch):
    """T35, through the doctor."""
    folder = write_japanese(tmp_path)
    monkeypatch.setitem(sys.modules, "ipadic", None)
    failed = [one for one in examine(patient(folder)) if one.level == "fail"]
    assert [one.subject for one in failed] == ["tokenizer"]
    assert "the MeCab dictionary ipadic (package ipadic) is not installed" in failed[0].text


def test_a_dictionary_beside_the_vocabulary_that_is_not_installed_is_left_out(tmp_path, monkeypatch):
    folder = write_japanese(tmp_path)
    monkeypatch.setitem(sys.modules, "unidic_lite", None)
    assert findings(folder, "dictionary of the vocabulary") == []


def test_what_is_in_the_way_of_one_check_does_not_stop_the_others(tmp_path, monkeypatch):
    def fails(one):
        raise DataError("it is broken; mend it")

    def fine(one):
        yield Finding("ok", "b", "fine")

    monkeypatch.setattr("kitae.doctor.checks.CHECKS", {"a": fails, "b": fine, "c": fails})
    assert list(examine(Patient(tmp_path))) == [
        Finding("fail", "a", "it is broken; mend it"),
        Finding("ok", "b", "fine"),
    ]


def test_only_the_machine_without_a_tokenizer(tmp_path):
    subjects = {one.subject for one in examine(Patient(tmp_path))}
    assert subjects & {"tokenizer", "dictionary", "vocabulary", "embedding"} == set()
    assert {"python", "backend", "cache"} <= subjects


def test_findings_can_be_written_as_json(tmp_path):
    assert json.dumps([vars(one) for one in examine(Patient(tmp_path))])
