import importlib.metadata
import sys
import types

import pytest
from japanese_case import golden, linked_dictionary, write_japanese
from transformers import AutoTokenizer

from kitae.data.dictionary import FILES, PACKAGES, Named, choose_dictionary, find_dictionary, mecab_kwargs
from kitae.data.tokenizer import tokenizer_fingerprint
from kitae.data.word_tokenizer import fingerprint_of, load_tokenizer, settled_settings
from kitae.errors import DataError

SENTENCES = golden()["sentences"]
IPADIC = golden()["ipadic"]["wordpiece"]


def ids_of(tokenizer):
    return [ids.tolist() for ids in tokenizer.encode_batch(SENTENCES)]


@pytest.mark.parametrize("name", ["a folder with blanks", 'quote" and \\ in it', "日本語"])
def test_a_folder_with_a_blank_in_its_name_starts(tmp_path, name):
    """T34, and marks that a shell would read."""
    folder = linked_dictionary(tmp_path / name)
    silent = write_japanese(tmp_path / "tokenizer", mecab_kwargs=None)
    assert ids_of(load_tokenizer(silent, str(folder))) == IPADIC


def test_an_absent_dictionary_names_its_package_and_no_other_is_taken(tmp_path, monkeypatch):
    """T35: another one is here, and is not used."""
    folder = write_japanese(tmp_path)
    monkeypatch.setitem(sys.modules, "ipadic", None)
    assert find_dictionary("unidic_lite").name == "unidic_lite"
    with pytest.raises(
        DataError, match=r"ipadic \(package ipadic\) is not installed; pip install 'kitae\[ja\]'"
    ):
        load_tokenizer(folder)


def test_absent_mecab_names_the_extra(tmp_path, monkeypatch):
    tokenizer = load_tokenizer(write_japanese(tmp_path))
    monkeypatch.setitem(sys.modules, "fugashi", None)
    with pytest.raises(DataError, match=r"package fugashi.*pip install 'kitae\[ja\]'"):
        tokenizer.encode_batch(["今日"])


def test_a_package_whose_dictionary_was_never_fetched(tmp_path, monkeypatch):
    """The package of the large UniDic arrives without it."""
    module = types.ModuleType("unidic")
    module.DICDIR = str(tmp_path)
    monkeypatch.setitem(sys.modules, "unidic", module)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.1.0")
    with pytest.raises(
        DataError, match=r"without its dictionary; pip install unidic && python -m unidic download"
    ):
        find_dictionary("unidic")


def test_the_large_unidic_through_its_package(tmp_path, monkeypatch):
    module = types.ModuleType("unidic")
    module.DICDIR = str(linked_dictionary(tmp_path / "unidic", "unidic_lite"))
    monkeypatch.setitem(sys.modules, "unidic", module)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.1.0")
    folder = write_japanese(tmp_path / "t", "unidic_lite", mecab_kwargs={"mecab_dic": "unidic"})
    tokenizer = load_tokenizer(folder)
    assert tokenizer.dictionary.identity == "unidic 1.1.0"
    assert ids_of(tokenizer) == golden()["unidic_lite"]["wordpiece"]


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        (None, (None, "")),
        ({}, (None, "")),
        ({"mecab_dic": "ipadic"}, ("ipadic", "")),
        ({"mecab_dic": "ipadic", "mecab_option": "-a"}, ("ipadic", "-a")),
        ({"mecab_dic": None, "mecab_option": "-d '/a b/c' -r x"}, ("/a b/c", "-d '/a b/c' -r x")),
        ({"mecab_dic": None, "mecab_option": "--dicdir=/x"}, ("/x", "--dicdir=/x")),
        ({"mecab_dic": None, "mecab_option": "-d/x"}, ("/x", "-d/x")),
        ({"mecab_dic": None, "mecab_option": "-a"}, (None, "-a")),
    ],
)
def test_what_the_files_say(kwargs, expected):
    named = Named.by(kwargs)
    assert (named.dictionary, named.option) == expected


def test_files_that_say_nothing_need_the_recipe(tmp_path):
    with pytest.raises(DataError, match=r"name no MeCab dictionary .*set data\.tokenizer\.dictionary"):
        choose_dictionary(Named(None), None, tmp_path)
    assert choose_dictionary(Named(None), "ipadic", tmp_path).name == "ipadic"


def test_a_recipe_that_contradicts_the_files(tmp_path):
    with pytest.raises(DataError, match=r"made with ipadic, and data\.tokenizer\.dictionary is unidic_lite"):
        choose_dictionary(Named("ipadic"), "unidic_lite", tmp_path)
    assert choose_dictionary(Named("ipadic"), "ipadic", tmp_path).name == "ipadic"
    with pytest.raises(DataError, match="made with ipadic"):
        choose_dictionary(Named("ipadic"), str(tmp_path), tmp_path)


def test_a_folder_may_lie_elsewhere_on_this_machine(tmp_path):
    here = linked_dictionary(tmp_path / "here")
    found = choose_dictionary(Named("/gone", "-d /gone"), str(here), tmp_path)
    assert found.name == str(here)
    with pytest.raises(DataError, match=r"^/gone: not a compiled MeCab dictionary \(no such folder\)"):
        choose_dictionary(Named("/gone", "-d /gone"), None, tmp_path)


def test_a_folder_that_is_no_dictionary_says_what_lacks(tmp_path):
    folder = linked_dictionary(tmp_path / "d")
    (folder / "unk.dic").unlink()
    with pytest.raises(DataError, match=r"\(no unk\.dic in it\).*one of unidic_lite, ipadic, unidic"):
        find_dictionary(str(folder))


def test_a_broken_dictionary_does_not_start(tmp_path):
    folder = tmp_path / "d"
    folder.mkdir()
    for name in FILES:
        (folder / name).write_text("broken")
    tokenizer = load_tokenizer(write_japanese(tmp_path / "t", mecab_kwargs=None), str(folder))
    with pytest.raises(DataError, match="MeCab does not start with the dictionary"):
        tokenizer.encode_batch(["今日"])


def test_identity_is_the_content_not_the_place(tmp_path):
    one, other = (find_dictionary(str(linked_dictionary(tmp_path / name))) for name in ("a", "b"))
    assert one.identity == other.identity
    assert one.option != other.option
    assert find_dictionary("ipadic").identity == f"ipadic {importlib.metadata.version('ipadic')}"
    assert find_dictionary("ipadic", "-a").identity != find_dictionary("ipadic").identity
    assert set(PACKAGES) == {"unidic_lite", "ipadic", "unidic"}


def test_transformers_takes_the_same_dictionary_from_what_is_written(tmp_path):
    """For a folder too, which transformers knows only as an option of MeCab."""
    folder = linked_dictionary(tmp_path / "my dictionary")
    for name in ("ipadic", str(folder)):
        kwargs = mecab_kwargs(find_dictionary(name))
        written = write_japanese(tmp_path / "t", mecab_kwargs=kwargs)
        stock = AutoTokenizer.from_pretrained(written)
        assert [stock(text, add_special_tokens=False)["input_ids"] for text in SENTENCES] == IPADIC
        assert ids_of(load_tokenizer(written)) == IPADIC


def test_a_copy_of_the_folder_names_what_only_the_recipe_said(tmp_path):
    """Older folders name no dictionary, and name their class in config.json."""
    named = write_japanese(tmp_path / "named")
    assert settled_settings(named) is None
    silent = write_japanese(tmp_path / "silent", mecab_kwargs={"normalize_text": True})
    assert settled_settings(silent, "ipadic")["mecab_kwargs"] == {
        "normalize_text": True,
        "mecab_dic": "ipadic",
    }
    folder = str(linked_dictionary(tmp_path / "my dictionary"))
    settings = settled_settings(silent, folder)
    copy = write_japanese(tmp_path / "copy", **settings)
    assert settings["tokenizer_class"] == "BertJapaneseTokenizer"
    stock = AutoTokenizer.from_pretrained(copy)
    assert [stock(text, add_special_tokens=False)["input_ids"] for text in SENTENCES] == IPADIC


def test_other_tokenizers_stay_as_they_are(tokenizer_folder):
    assert settled_settings(tokenizer_folder) is None
    assert fingerprint_of(tokenizer_folder) == tokenizer_fingerprint(tokenizer_folder)


def test_a_fingerprint_without_loading(tmp_path):
    folder = write_japanese(tmp_path)
    assert fingerprint_of(folder) == load_tokenizer(folder).fingerprint
    assert fingerprint_of(folder) != tokenizer_fingerprint(folder)
