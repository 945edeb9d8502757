import json
import shutil

import numpy as np
import pytest
from tiny_tokenizer import SENTENCES, write_tokenizer
from tokenizers import Tokenizer, models, processors

from kitae.data.special import check_token, special_ids
from kitae.data.tokenise import Encoder, EncoderSpec
from kitae.data.tokenizer import TextTokenizer, tokenizer_fingerprint
from kitae.errors import DataError

VOICED = "がぎぐげござじずぜぞだぢづでどばびぶべぼぱぴぷぺぽ"


def test_loads_with_ids_and_size(tokenizer):
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.adds_bos) == (0, 1, False)
    assert tokenizer.vocab_size == 400
    assert tokenizer.token(1) == "<e>"
    assert tokenizer.token(10_000) == "<no token 10000>"


def test_encodes_and_decodes_without_special_tokens(tokenizer):
    for text, ids in zip(SENTENCES, tokenizer.encode_batch(SENTENCES), strict=True):
        assert ids.dtype == np.uint32
        assert ids.tolist() == tokenizer.encode(text)
        assert not {0, 1} & set(ids.tolist())
        assert tokenizer.decode(ids.tolist()) == text


def test_voiced_kana_come_back_voiced(tokenizer):
    """T32, through the tokenizer."""
    assert tokenizer.decode(tokenizer.encode(VOICED)) == VOICED


@pytest.mark.parametrize("template", [None, "<b> $A", "$A <e>", "<b> $A <e>"])
def test_explicit_begin_and_end(tokenizer_json, tmp_path, make_config, template):
    """T24: b x e b y e, whatever the tokenizer's own template does."""
    backend = Tokenizer.from_str(tokenizer_json)
    if template:
        special = [("<b>", 0), ("<e>", 1)]
        backend.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)
    tokenizer = TextTokenizer.load(write_tokenizer(tmp_path, backend.to_str()))
    bos, eos = special_ids(make_config("x", bos="always", eos="always"), tokenizer)
    batch = Encoder(EncoderSpec(tokenizer.to_json(), bos=bos, eos=eos))(["x", "y"])
    x, y = tokenizer.encode("x"), tokenizer.encode("y")
    assert batch.ids.tolist() == [0, *x, 1, 0, *y, 1]
    assert batch.lengths.tolist() == [3, 3]


def test_automatic_policy_does_what_the_tokenizer_does(tokenizer, template_folder, make_config):
    config = make_config("x")
    assert special_ids(config, tokenizer) == ((), (1,))
    assert special_ids(config, TextTokenizer.load(template_folder)) == ((0,), (1,))
    assert special_ids(make_config("x", bos="never", eos="never"), tokenizer) == ((), ())


@pytest.mark.parametrize("name", ["bos", "eos"])
def test_asking_for_a_token_that_is_not_there_names_the_field(tokenizer_json, tmp_path, make_config, name):
    folder = write_tokenizer(tmp_path, tokenizer_json, {"bos_token": None, "eos_token": None})
    tokenizer = TextTokenizer.load(folder)
    with pytest.raises(DataError, match=rf"data\.{name}: always, but the tokenizer has no {name} token"):
        special_ids(make_config("x", **{name: "always"}), tokenizer)
    assert special_ids(make_config("x"), tokenizer) == ((), ())


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"tokenizer_config.json": {"bos_token": {"content": "<b>"}, "eos_token": "<e>"}}, (0, 1)),
        ({"special_tokens_map.json": {"bos_token": "<b>", "eos_token": {"content": "<e>"}}}, (0, 1)),
        ({"config.json": {"bos_token_id": 0, "eos_token_id": [1, 7]}}, (0, 1)),
        (
            {
                "tokenizer_config.json": {"bos_token": None},
                "config.json": {"bos_token_id": 5, "eos_token_id": 1},
            },
            (None, 1),
        ),
        ({"tokenizer_config.json": {"bos_token": "<nowhere>"}}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_where_begin_and_end_ids_come_from(tokenizer_json, tmp_path, files, expected):
    (tmp_path / "tokenizer.json").write_text(tokenizer_json)
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    tokenizer = TextTokenizer.load(tmp_path)
    assert (tokenizer.bos_id, tokenizer.eos_id) == expected


def test_a_stated_add_bos_token_goes_before_the_template(tokenizer_json, tmp_path, template_folder):
    named = {"bos_token": "<b>", "eos_token": "<e>", "add_bos_token": True}
    assert TextTokenizer.load(write_tokenizer(tmp_path / "plain", tokenizer_json, named)).adds_bos
    text = (template_folder / "tokenizer.json").read_text()
    named["add_bos_token"] = False
    assert not TextTokenizer.load(write_tokenizer(tmp_path / "template", text, named)).adds_bos


def test_truncation_padding_and_dropout_are_off(tokenizer, tokenizer_json, tmp_path):
    backend = Tokenizer.from_str(tokenizer_json)
    backend.enable_truncation(4)
    backend.enable_padding(length=64)
    backend.model.dropout = 0.5
    other = TextTokenizer.load(write_tokenizer(tmp_path, backend.to_str()))
    text = " ".join(SENTENCES)
    assert other.encode(text) == tokenizer.encode(text)
    assert Tokenizer.from_str(other.to_json()).encode(text).ids == tokenizer.encode(text)


def test_no_pad_token_is_needed_and_none_is_added(tokenizer):
    """T27."""
    assert "pad" not in " ".join(tokenizer.backend.get_vocab())
    assert tokenizer.vocab_size == max(tokenizer.backend.get_vocab().values()) + 1 == 400


def test_size_counts_added_tokens_beyond_the_model(tokenizer_json, tmp_path):
    backend = Tokenizer.from_str(tokenizer_json)
    backend.add_tokens(["<added>"])
    assert TextTokenizer.load(write_tokenizer(tmp_path, backend.to_str())).vocab_size == 401


def test_an_id_beyond_the_embedding_is_named():
    """T25."""
    check_token(399, "x", "f.txt:3", 400)
    with pytest.raises(DataError, match=r"^f\.txt:3: token '<added>' has id 400, .* has 400 rows"):
        check_token(400, "<added>", "f.txt:3", 400)


def test_fingerprint_sees_one_byte_and_the_ids_of_the_config(tokenizer_folder, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(tokenizer_folder, folder)
    first = tokenizer_fingerprint(folder)
    assert first == tokenizer_fingerprint(tokenizer_folder)
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace('"!"', '"¡"', 1))
    second = tokenizer_fingerprint(folder)
    (folder / "config.json").write_text(json.dumps({"hidden_size": 3}))
    assert tokenizer_fingerprint(folder) == second
    (folder / "config.json").write_text(json.dumps({"eos_token_id": 3}))
    assert len({first, second, tokenizer_fingerprint(folder)}) == 3


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"no tokenizer here .* set data.tokenizer"),
        ({"tokenizer.json": "{}"}, r"tokenizer\.json: not a tokenizer"),
        (
            {"vocab.json": "{", "tokenizer_config.json": "{}"},
            r"transformers cannot make one from the other files",
        ),
    ],
)
def test_a_folder_without_a_usable_tokenizer(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        TextTokenizer.load(tmp_path)


def test_slow_files_go_through_transformers(tokenizer, tmp_path):
    vocab = json.loads(tokenizer.to_json())["model"]["vocab"]
    merges = json.loads(tokenizer.to_json())["model"]["merges"]
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    (tmp_path / "merges.txt").write_text(
        "#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in merges)
    )
    named = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<b>", "eos_token": "<e>", "unk_token": "<e>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    slow = TextTokenizer.load(tmp_path)
    assert (slow.bos_id, slow.eos_id, slow.vocab_size) == (0, 1, 400)
    assert slow.encode(SENTENCES[0]) == tokenizer.encode(SENTENCES[0])


def test_a_text_the_tokenizer_cannot_encode(tmp_path):
    backend = Tokenizer(models.WordLevel({"known": 0}, unk_token="<missing>"))
    tokenizer = TextTokenizer.load(write_tokenizer(tmp_path, backend.to_str(), {}))
    with pytest.raises(DataError, match="the tokenizer cannot encode a text"):
        tokenizer.encode("unknown")
    with pytest.raises(DataError, match="not valid Unicode"):
        tokenizer.encode("known \udcff")
