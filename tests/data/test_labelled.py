"""Labelled texts from sources to rows."""

import errno
import json
import shutil

import numpy as np
import pytest
from japanese_case import write_japanese
from tiny_wordpiece import IDS, write_wordpiece
from transformers import AutoTokenizer, BertJapaneseTokenizer

import kitae.data.reading as reading_module
from kitae.data.examples import Sample
from kitae.data.labelled import class_names
from kitae.data.labelled_data import LabelledData
from kitae.data.labelled_encode import LabelledSpec
from kitae.data.labelled_pack import LabelledWriter
from kitae.data.prepare import data_key, prepare, summary
from kitae.data.ragged import fitted
from kitae.data.rows import IGNORED
from kitae.data.word_tokenizer import load_tokenizer
from kitae.errors import DataError, StorageError
from kitae.recipe.sources import DataConfig

STARS = {"1": 0, "2": 0, "4": 1, "5": 1}


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return write_wordpiece(tmp_path_factory.mktemp("bert"))


def config(path="a.jsonl", labels=None, **options):
    labels = {"field": "stars", "values": STARS, "names": ["negative", "positive"], **(labels or {})}
    values = {"train": [{"path": path}], "sequence_length": 8, "workers": 0, "labels": labels, **options}
    return DataConfig.model_validate_json(json.dumps(values), strict=True)


@pytest.fixture
def go(tmp_path, bert):
    def run(data, *, seed=0, folder=None, rows=100, cache="cache", **options):
        return prepare(
            data,
            base=tmp_path,
            tokenizer_folder=folder or bert,
            embedding_rows=rows,
            cache=tmp_path / cache,
            seed=seed,
            objective="classification",
            **options,
        )

    return run


def records(count=200):
    words = ["good", "bad", "book", "film", "unwanted", "very"]
    return [
        {
            "text": f"{words[n % 6]} {words[n // 6 % 6]} {chr(97 + n % 26)} {chr(97 + n // 26)}",
            "stars": n % 5 + 1,
        }
        for n in range(count)
    ]


@pytest.fixture
def write_records(write):
    def put(name="a.jsonl", items=None):
        items = records() if items is None else items
        return write(name, "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items))

    return put


def read_all(data):
    return data.read([Sample(number) for number in range(len(data))])


def test_rows_are_those_of_transformers(go, write_records, bert):
    """Ids, token types and lengths as the stock tokenizer makes them with truncation and padding."""
    write_records()
    made = go(config())
    kept = [record for record in records() if record["stars"] != 3]
    stock = AutoTokenizer.from_pretrained(bert)(
        [record["text"] for record in kept], max_length=8, truncation=True, padding="max_length"
    )
    rows = read_all(made.train)
    assert rows.input_ids.tolist() == stock["input_ids"]
    assert rows.token_type_ids.tolist() == stock["token_type_ids"]
    assert rows.lengths.tolist() == [sum(mask) for mask in stock["attention_mask"]]
    assert rows.labels.tolist() == [STARS[str(record["stars"])] for record in kept]
    assert rows.input_ids.dtype == rows.labels.dtype == np.int64
    assert made.heldout is None


def test_what_is_left_out_is_counted_in_the_card(go, write_records):
    items = [
        *records(10),
        {"text": " ", "stars": 1},
        {"text": "good", "stars": None},
        {"text": "bad [SEP]", "stars": 5},
    ]
    write_records(items=items)
    said = []
    card = go(config(), report=said.append).card
    assert card["objective"] == "classification"
    assert class_names(card) == ["negative", "positive"]
    assert card["labels"]["dropped_by_label"] == {"3": 2, "(none)": 1}
    assert card["labels"]["dropped_texts"] == 3
    assert card["sources"]["train"]["documents"] == 13
    assert card["sources"]["train"]["empty_documents_dropped"] == 1
    split = card["splits"]["train"]
    assert split["labels"] == {"negative": 4, "positive": 5}
    assert split["rows"] == split["documents"] == 9
    assert split["padding"] == 9 * 8 - split["tokens"]
    assert "train: 9 texts (negative 4 (44.4%), positive 5 (55.6%))" in "\n".join(said)
    assert "3 texts were left out for their label (3: 2, (none): 1)" in said
    assert "special tokens stand 1 times inside the texts of train" in card["warnings"]


def test_long_texts_are_cut_and_counted(go, write_records):
    write_records(items=[{"text": "good " * 9, "stars": 5}, {"text": "bad", "stars": 1}])
    made = go(config(sequence_length=6))
    rows = read_all(made.train)
    assert rows.input_ids.tolist() == [
        [IDS["[CLS]"], *[IDS["good"]] * 4, IDS["[SEP]"]],
        [IDS["[CLS]"], IDS["bad"], IDS["[SEP]"], 0, 0, 0],
    ]
    split = made.card["splits"]["train"]
    assert (split["documents_cut"], split["tokens_cut"]) == (1, 5)
    assert "1 cut at 6 tokens" in summary(made.card)[0]


def test_pairs_are_cut_token_by_token_from_the_longer():
    """Against the loop of BERT's own code: of equal texts the second loses a token."""
    cases = [(one, two, room) for one in range(9) for two in range(9) for room in range(2, 9)]
    first, second = fitted(*np.array(cases).T)
    for (one, two, room), *kept in zip(cases, first, second, strict=True):
        while one + two > room:
            one, two = (one - 1, two) if one > two else (one, two - 1)
        assert kept == [one, two], (one, two, room)


def test_pairs_have_two_types(go, write_records, bert):
    items = [
        {"text": "good book", "reply": "a very bad film", "stars": 1},
        {"text": "bad " * 9, "reply": "good", "stars": 5},
        {"text": "film", "reply": "", "stars": 5},
    ]
    write_records(items=items)
    made = go(config(labels={"text_pair_field": "reply"}, sequence_length=10))
    stock = AutoTokenizer.from_pretrained(bert)(
        [item["text"] for item in items],
        [item["reply"] for item in items],
        max_length=10,
        truncation=True,
        padding="max_length",
    )
    rows = read_all(made.train)
    assert rows.input_ids.tolist() == stock["input_ids"]
    assert rows.token_type_ids.tolist() == stock["token_type_ids"]


def test_japanese_rows_are_those_of_transformers(go, write_records, tmp_path):
    folder = write_japanese(tmp_path / "ja", "unidic_lite")
    texts = ["この映画は面白かった。", "店員の態度がひどい。", "\n改行がある。\n", "普通。"]
    write_records(
        items=[{"text": text, "stars": stars} for text, stars in zip(texts, (5, 1, 4, 3), strict=True)]
    )
    made = go(config(sequence_length=16), folder=folder, rows=3100)
    stock = BertJapaneseTokenizer.from_pretrained(folder)
    expected = stock(texts[:3], max_length=16, truncation=True, padding="max_length")
    assert read_all(made.train).input_ids.tolist() == expected["input_ids"]
    assert made.card["tokenizer"]["dictionary"] == "unidic_lite"
    assert made.card["tokenizer"]["dictionary_version"].startswith("unidic-lite 1.")


def test_workers_cut_japanese_alike(go, write_records, tmp_path):
    """Each worker starts its own MeCab."""
    folder = write_japanese(tmp_path / "ja")
    write_records(items=[{"text": f"{n}番目の映画は良かった。", "stars": n % 2 * 4 + 1} for n in range(50)])
    made = [
        go(config(sequence_length=16, workers=workers), folder=folder, rows=3100, cache=f"cache{workers}")
        for workers in (0, 2)
    ]
    rows = [read_all(one.train) for one in made]
    assert rows[0].input_ids.tolist() == rows[1].input_ids.tolist()
    assert made[0].key == made[1].key


def test_any_format_gives_the_same_rows(go, write_records, write):
    write_records()
    write("b.csv", "stars,text\n" + "".join(f"{r['stars']},{r['text']}\n" for r in records()))
    first, second = go(config()), go(config("b.csv"))
    assert first.key != second.key
    for one, other in zip(
        vars(read_all(first.train)).values(), vars(read_all(second.train)).values(), strict=True
    ):
        assert np.array_equal(one, other)


def test_labels_as_they_are_sorted(go, write_records):
    write_records(
        items=[{"text": "good", "stars": 10}, {"text": "bad", "stars": 9}, {"text": "book", "stars": 10}]
    )
    made = go(config(labels={"values": None, "names": None}))
    assert class_names(made.card) == ["9", "10"]
    assert read_all(made.train).labels.tolist() == [1, 0, 1]
    assert made.train.classes == ("9", "10")


def test_held_out_texts_and_their_duplicates(go, write_records):
    write_records()
    write_records("h.jsonl", [*records(3), {"text": "film film", "stars": 1}])
    made = go(config(heldout={"sources": [{"path": "h.jsonl"}]}))
    assert len(made.heldout) == 3
    assert made.card["heldout_duplicates_in_train"] == 2
    assert any("2 training documents are also held out" in warning for warning in made.card["warnings"])


def test_equal_texts_fall_on_one_side_whatever_their_labels(go, write_records):
    items = [{**record, "stars": stars} for record in records(60) for stars in (1, 5)]
    write_records(items=items)
    made = go(config(heldout={"fraction": 0.3}))
    sides = [{tuple(row) for row in read_all(side).input_ids.tolist()} for side in (made.train, made.heldout)]
    assert not sides[0] & sides[1]
    assert made.card["heldout_duplicates_in_train"] == 0
    assert len(made.train) + len(made.heldout) == 120


def test_samples_are_drawn_by_the_seed_alone(go, write_records):
    write_records()
    labels = {"sample": 30, "sample_heldout": 10}
    options = {"heldout": {"fraction": 0.3}, "labels": labels}
    one, again = go(config(**options)), go(config(**options, workers=2), cache="other")
    other = go(config(**options), seed=1)
    assert (len(one.train), len(one.heldout)) == (30, 10)
    assert sum(one.card["splits"]["train"]["labels"].values()) == 30
    rows = [read_all(made.train).input_ids.tolist() for made in (one, again, other)]
    assert rows[0] == rows[1] != rows[2]
    everything = go(config(heldout={"fraction": 0.3}))
    whole = read_all(everything.train).input_ids.tolist()
    places = [whole.index(row) for row in rows[0]]
    assert places == sorted(places), "a sample keeps the order"
    tokens = one.card["splits"]["train"]["tokens"]
    assert tokens == int(read_all(one.train).lengths.sum()) == one.train.meta.tokens
    assert not (one.folder / "train/all-ids.bin").exists()


def test_a_sample_larger_than_the_text_is_said(go, write_records):
    write_records()
    made = go(config(labels={"sample": 1000}))
    assert len(made.train) == 160
    assert made.card["warnings"] == [
        "data.labels.sample asks for 1000 texts, and there are 160: all were taken"
    ]


def test_a_class_without_texts_is_said(go, write_records):
    write_records(items=[record for record in records(50) if record["stars"] != 5])
    labels = {"values": {"1": 0, "2": 1, "5": 2}, "names": ["bad", "poor", "good"]}
    made = go(config(labels=labels))
    assert "the class good has no text in train" in made.card["warnings"]


def test_many_classes_without_texts_are_one_warning(go, write_records):
    write_records(items=[record for record in records(50) if record["stars"] < 3])
    labels = {"values": {str(n + 1): n for n in range(20)}, "names": None}
    (warning,) = (one for one in go(config(labels=labels)).card["warnings"] if "no text" in one)
    first = ", ".join(f"LABEL_{n}" for n in range(2, 12))
    assert warning == f"18 classes have no text in train: {first}, .."


def test_texts_of_one_class_teach_nothing(go, write_records):
    write_records(items=[record for record in records(50) if record["stars"] != 5])
    with pytest.raises(
        DataError, match="all 10 training texts are of the class negative, from which nothing"
    ):
        go(config(labels={"values": {"1": 0, "5": 1}}))


def test_text_of_another_vocabulary_is_said(go, write_records):
    write_records(items=[{"text": "日本語 の 文", "stars": 1}, {"text": "film", "stars": 5}])
    warning = next(one for one in go(config()).card["warnings"] if "unknown" in one)
    assert "of the tokens of train are unknown" in warning
    assert "kitae doctor" in warning


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (
            [{"text": "good", "stars": 3}],
            r"no text has one of '1', '2', '4', '5'; the field 'stars' holds '3'",
        ),
        ([{"text": " ", "stars": 1}], "there is no text: 1 documents, all empty"),
        ([{"text": "good"}], r"a\.jsonl:1: there is no field 'stars'.*data\.labels\.field"),
        ([{"text": "good", "stars": [1]}], r"field 'stars' is a JSON array"),
    ],
)
def test_texts_that_cannot_be_used(go, write_records, items, message, tmp_path):
    write_records(items=items)
    with pytest.raises(DataError, match=message):
        go(config())
    assert [path for path in (tmp_path / "cache/data").iterdir() if path.suffix != ".lock"] == []


def test_rows_too_short_for_a_text(go, write_records):
    write_records(
        items=[{"text": "good", "reply": "a", "stars": 1}, {"text": "bad", "reply": "b", "stars": 5}]
    )
    with pytest.raises(DataError, match="2 positions hold no text beside the special tokens; set it to 3"):
        go(config(sequence_length=2))
    assert read_all(go(config(sequence_length=3)).train).lengths.tolist() == [3, 3]
    with pytest.raises(DataError, match="set it to 5"):
        go(config(labels={"text_pair_field": "reply"}, sequence_length=4))


def test_a_full_disk_leaves_nothing(go, write_records, tmp_path, monkeypatch):
    write_records()
    append = LabelledWriter.append

    def full(self, texts, labels):
        append(self, texts, labels)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(LabelledWriter, "append", full)
    with pytest.raises(StorageError, match=r"No space left on device; needed are \d,\d+ bytes"):
        go(config())
    assert [path for path in (tmp_path / "cache/data").iterdir() if path.suffix != ".lock"] == []
    monkeypatch.undo()
    assert not go(config()).reused


def test_an_id_beyond_the_embedding_stops(go, write_records):
    """T25, and case 47."""
    write_records()
    with pytest.raises(DataError, match=r"has id \d+, but the embedding has 20 rows"):
        go(config(), rows=20)


def test_a_tokenizer_without_the_tokens_around_a_text(go, write_records, tokenizer_folder):
    write_records()
    with pytest.raises(DataError, match=r"lacks a token for: cls \(\[CLS\]\), sep \(\[SEP\]\)"):
        go(config(), folder=tokenizer_folder, rows=400)


def test_second_time_tokenises_nothing(go, write_records, monkeypatch):
    """Case 44."""
    write_records()
    first = go(config())
    monkeypatch.setattr(reading_module, "encoding", lambda *args: pytest.fail("tokenised again"))
    again = go(config())
    assert (first.reused, again.reused, first.key) == (False, True, again.key)


def test_the_key_follows_all_that_the_rows_depend_on(write_records, tmp_path, bert):
    write_records()

    def key(seed=0, **options):
        return data_key(
            config(**options), base=tmp_path, tokenizer_fingerprint="f", seed=seed, objective="classification"
        )

    assert key() == key(seed=1) == key(workers=3)
    others = [
        key(labels={"values": {"1": 0, "5": 1}}),
        key(labels={"names": ["bad", "good"]}),
        key(labels={"field": "text"}),
        key(labels={"sample": 5}),
        key(labels={"sample": 5}, seed=1),
        key(sequence_length=16),
        key(normalisation="nfkc"),
    ]
    assert len({key(), *others}) == len(others) + 1


def test_the_dictionary_is_part_of_the_key(go, write_records, tmp_path):
    """Case 44: the same files with another dictionary give other ids."""
    folder = write_japanese(tmp_path / "ja", mecab_kwargs=None)
    write_records(items=[{"text": "良い本", "stars": 5}, {"text": "悪い本", "stars": 1}])
    keys = {
        go(config(tokenizer={"folder": "ja", "dictionary": name}), folder=folder, rows=3100).key
        for name in ("ipadic", "unidic_lite")
    }
    assert len(keys) == 2


def test_padded_rows_and_parts(go, write_records):
    write_records()
    rows = read_all(go(config()).train).part(slice(0, 3))
    padded = rows.pad(5)
    assert padded.input_ids.shape == (5, 8)
    assert padded.lengths.tolist() == [*rows.lengths.tolist(), 0, 0]
    assert padded.labels.tolist()[3:] == [IGNORED, IGNORED]
    assert padded.real_tokens == rows.real_tokens == int(rows.lengths.sum())


def test_rows_by_number_in_any_order(go, write_records):
    write_records()
    data = go(config()).train
    rows, whole = data.read([Sample(5, 3), Sample(2)]), read_all(data)
    assert rows.input_ids.tolist() == whole.input_ids[[5, 2]].tolist()
    assert rows.labels.tolist() == whole.labels[[5, 2]].tolist()
    with pytest.raises(IndexError, match="row 160: there are rows 0 to 159"):
        data.read([Sample(160)])


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda folder: (folder / "ids.bin").write_bytes(b""), "0 bytes where"),
        (lambda folder: (folder / "labelled.json").write_text("{}"), "format None, this kitae reads 1"),
        (lambda folder: (folder / "labelled.json").unlink(), "no labelled texts"),
    ],
)
def test_a_damaged_folder_is_named(go, write_records, tmp_path, break_it, message):
    write_records()
    folder = shutil.copytree(go(config()).folder / "train", tmp_path / "copy")
    break_it(folder)
    with pytest.raises(DataError, match=rf"{message}.*delete the folder and prepare again"):
        LabelledData.open(folder)


def test_workers_give_the_same_as_none(bert):
    spec = LabelledSpec(load_tokenizer(bert), "nfkc", 8)
    encoder = spec.open()
    contents = [("good book", None), None, (" ", "x"), ("ｂａｄ", "film")]
    found = encoder(contents)
    assert found.lengths.tolist() == [4, 0, 0, 5]
    assert found.firsts.tolist() == [4, 0, 0, 3]
    assert found.counts[:, 2].tolist() == [0, 0, 0, 1]
    chosen = found.select(np.array([False, False, True, True]))
    assert chosen.ids.tolist() == encoder(contents[3:]).ids.tolist()
    assert encoder([]).counts.shape == (0, 7)
