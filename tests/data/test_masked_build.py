import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from japanese_case import write_japanese
from tiny_wordpiece import IDS, write_wordpiece

import kitae.data.reading as reading_module
from kitae.data.examples import Sample
from kitae.data.masked_pack import MaskedWriter
from kitae.data.prepare import data_key, prepare
from kitae.data.rows import IGNORED
from kitae.data.word_tokenizer import load_tokenizer
from kitae.errors import DataError, StorageError

CLS, SEP, MASK = IDS["[CLS]"], IDS["[SEP]"], IDS["[MASK]"]
ROWS = len(IDS)


def stories(count, seed=0):
    """Documents of sentences, of whole words and of ones in pieces."""
    rng = np.random.default_rng(seed)
    words = ["good", "bad", "book", "film", "unwanted", "the", "a", "very", "not", "abc", "xy"]
    return [
        " ".join(
            " ".join(rng.choice(words, rng.integers(2, 9)).tolist()).capitalize() + "."
            for _ in range(rng.integers(2, 14))
        )
        for _ in range(count)
    ]


@pytest.fixture(scope="session")
def bert_folder(tmp_path_factory):
    return write_wordpiece(tmp_path_factory.mktemp("bert"))


@pytest.fixture
def go(tmp_path, bert_folder):
    def run(config, *, seed=0, folder=None, rows=ROWS, report=None):
        return prepare(
            config,
            base=tmp_path,
            tokenizer_folder=folder or bert_folder,
            embedding_rows=rows,
            cache=tmp_path / "cache",
            seed=seed,
            objective="masked-lm",
            report=report,
        )

    return run


@pytest.fixture
def corpus(write):
    write("a.txt", "\n".join(stories(200)))
    return {"path": "a.txt", "source": {"document": "line"}, "sequence_length": 32}


def originals(data):
    """What every row held before anything was hidden, checked against what is hidden."""
    rows = data.read([Sample(number) for number in range(len(data))])
    ids = rows.input_ids.copy()
    row, slot = np.nonzero(rows.labels != IGNORED)
    ids[row, rows.positions[row, slot]] = rows.labels[row, slot]
    return rows, ids


def texts_of(ids, types, length):
    """The tokens of a row's first and second text."""
    inside = [int(token) for token in ids[:length]]
    assert inside[0] == CLS
    assert inside[-1] == SEP
    split = int((types[:length] == 0).sum())
    assert inside[split - 1] == SEP
    return inside[1 : split - 1], inside[split:-1]


def test_rows_are_pairs_of_sentences(go, corpus, make_config, bert_folder):
    """[CLS] A [SEP] B [SEP]; the second text follows, or is another document's, in half of the rows."""
    made = go(make_config(**corpus))
    rows, ids = originals(made.train)
    assert rows.input_ids.shape == (len(made.train), 32)
    assert rows.positions.shape == (len(made.train), 5)
    tokenizer = load_tokenizer(bert_folder)
    documents = [" ".join(map(str, found)) for found in tokenizer.encode_batch(stories(200))]
    for row in range(len(ids)):
        first, second = texts_of(ids[row], rows.token_type_ids[row], rows.lengths[row])
        assert (ids[row, rows.lengths[row] :] == IDS["[PAD]"]).all()
        first_text, second_text = (" ".join(map(str, text)) for text in (first, second))
        homes = [number for number, document in enumerate(documents) if first_text in document]
        assert homes
        assert any(second_text in document for document in documents)
        if rows.next_sentence[row] == 0:
            assert any(second_text in documents[number].split(first_text, 1)[1] for number in homes)
    assert abs(rows.next_sentence.mean() - 0.5) < 0.06


def test_rows_of_one_text(go, corpus, make_config, bert_folder):
    made = go(make_config(**corpus, masking={"next_sentence": False, "short_sequence_probability": 0.0}))
    rows, ids = originals(made.train)
    tokenizer = load_tokenizer(bert_folder)
    expected = [int(token) for found in tokenizer.encode_batch(stories(200)) for token in found]
    held = [token for row in range(len(ids)) for token in ids[row, 1 : rows.lengths[row] - 1].tolist()]
    assert held == expected, "every token is in one row, in order"
    assert not rows.token_type_ids.any()
    assert (rows.next_sentence == IGNORED).all()
    assert rows.counts[1] == 0
    split = made.card["splits"]["train"]
    assert (split["tokens"], split["tokens_cut_off"], split["pairs"]) == (len(expected), 0, 0)


def test_words_of_several_pieces_are_hidden_together(go, corpus, make_config):
    """T37 with a real tokenizer: un ##want ##ed."""
    made = go(make_config(**corpus))
    rows, ids = originals(made.train)
    hidden = np.zeros(ids.shape, bool)
    row, slot = np.nonzero(rows.labels != IGNORED)
    hidden[row, rows.positions[row, slot]] = True
    pieces = np.isin(ids, [IDS["##want"], IDS["##ed"]])
    inside = pieces[:, 1:] & np.isin(ids[:, :-1], [IDS["un"], IDS["##want"]])
    assert inside.sum() > 300
    assert (hidden[:, 1:][inside] == hidden[:, :-1][inside]).all()
    assert 0.05 < hidden[:, 1:][inside].mean() < 0.25
    alone = go(make_config(**corpus, masking={"whole_word": False}))
    assert alone.train.word_starts(range(len(alone.train)))[:, 1:20].mean() > 0.9


def test_words_are_those_of_mecab(go, write, make_config, tmp_path):
    """T37 and row 48: no fast tokenizer, no prefix test; what MeCab cut is hidden together."""
    text = "今日は天気がいいので、散歩に行きます。新しい辞書を使って文章を分けています。"
    write("a.txt", "\n".join([text] * 300))
    folder = write_japanese(tmp_path / "ja")
    masking = {"next_sentence": False, "short_sequence_probability": 0.0}
    config = make_config("a.txt", source={"document": "line"}, sequence_length=48, masking=masking)
    made = go(config, folder=folder, rows=10_000)
    tokenizer = load_tokenizer(folder)
    sentences = tokenizer.words_batch([part + "。" for part in text.split("。") if part])
    starts = np.concatenate([words.starts for words in sentences])
    assert (made.train.word_starts([0])[0, 1 : 1 + len(starts)] == starts).all()
    assert 0.2 < starts.mean() < 0.95, "some words have several pieces"
    rows, _ = originals(made.train)
    row, slot = np.nonzero(rows.labels != IGNORED)
    hidden = np.zeros(rows.input_ids.shape, bool)
    hidden[row, rows.positions[row, slot]] = True
    inside = hidden[:, 1 : 1 + len(starts)]
    assert (inside[:, 1:][:, ~starts[1:]] == inside[:, :-1][:, ~starts[1:]]).all()
    assert abs(inside[:, starts].mean() - 0.15) < 0.01
    assert made.card["tokenizer"]["dictionary"] == "ipadic"


def test_the_card_adds_up(go, corpus, make_config):
    said = []
    made = go(make_config(**corpus, heldout={"fraction": 0.2}), report=said.append)
    assert made.card["objective"] == "masked-lm"
    splits = made.card["splits"]
    assert sum(split["documents"] for split in splits.values()) == 200
    for name, data in (("train", made.train), ("heldout", made.heldout)):
        split, (rows, _) = splits[name], originals(data)
        framing = 3 * split["rows"]
        held = split["tokens"] - split["tokens_cut_off"] + split["tokens_borrowed"]
        assert rows.real_tokens == held + framing
        assert split["padding"] == split["rows"] * 32 - rows.real_tokens
        assert split["pairs"] == split["rows"] == len(data)
        assert split["random_pairs"] == (rows.next_sentence == 1).sum()
        assert split["masked"]["predictions"] == rows.counts[0]
        assert split["masked"]["share_of_words"] == pytest.approx(0.15, abs=0.01)
    assert made.card["tokenizer"]["special_tokens"]["mask"] == [MASK, "[MASK]"]
    assert made.card["options"]["max_predictions"] == 5
    assert any("pairs random" in line and "tokens hidden" in line for line in said)
    assert {path.name for path in made.folder.iterdir()} == {"card.json", "train", "heldout"}


def test_held_out_masks_never_change(go, corpus, make_config):
    made = go(make_config(**corpus, heldout={"fraction": 0.2}))
    for data, changes in ((made.train, True), (made.heldout, False)):
        first, later = (data.read([Sample(n, epoch) for n in range(20)]) for epoch in (0, 7))
        assert (first.positions != later.positions).any() == changes
        assert (first.input_ids != later.input_ids).any() == changes
    static = go(make_config(**corpus, masking={"dynamic": False}))
    first, later = (static.train.read([Sample(n, epoch) for n in range(20)]) for epoch in (0, 7))
    assert (first.input_ids == later.input_ids).all()


def test_key_covers_all_that_a_row_depends_on(write, tmp_path, make_config):
    write("a.txt", "some text")

    def key(objective="masked-lm", seed=0, **options):
        config = make_config("a.txt", **options)
        return data_key(config, base=tmp_path, tokenizer_fingerprint="f", seed=seed, objective=objective)

    assert key() == key(masking={}) == key(workers=3) == key(eos="never")
    assert key(masking={"max_predictions": 5}) == key(), "which is what auto gives for 16 positions"
    others = [
        key("causal-lm"),
        key(seed=1),
        key(sequence_length=32),
        key(normalisation="nfkc"),
        *(
            key(masking=masking)
            for masking in (
                {"probability": 0.2},
                {"replace": 0.7},
                {"random": 0.2},
                {"whole_word": False},
                {"max_predictions": 6},
                {"dynamic": False},
                {"next_sentence": False},
                {"short_sequence_probability": 0.2},
                {"sentences": "line"},
            )
        ),
    ]
    assert len({key(), *others}) == len(others) + 1


def test_second_time_reads_no_text(go, corpus, make_config, monkeypatch):
    """Case 44."""
    first = go(make_config(**corpus))
    monkeypatch.setattr(reading_module, "encoding", lambda *args: pytest.fail("tokenised again"))
    again = go(make_config(**corpus))
    assert again.reused
    assert again.key == first.key
    both = [made.train.read([Sample(n, 1) for n in range(len(made.train))]) for made in (first, again)]
    assert all((a == b).all() for a, b in zip(*(vars(rows).values() for rows in both), strict=True))


def test_any_number_of_workers_writes_the_same_bytes(go, corpus, make_config, tmp_path):
    files = []
    for workers in (0, 2):
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        made = go(make_config(**corpus, workers=workers, heldout={"fraction": 0.2}))
        found = sorted(path for side in ("train", "heldout") for path in (made.folder / side).iterdir())
        files.append([(path.name, path.read_bytes()) for path in found])
    assert files[0] == files[1]


def test_long_sentences_are_cut_at_words(go, write, make_config):
    """T31 in small: a document without punctuation is not lost."""
    write("a.txt", "\n".join(["unwanted " * 300, "good film. bad book."]))
    config = make_config(
        "a.txt",
        source={"document": "line"},
        sequence_length=32,
        masking={"next_sentence": False, "short_sequence_probability": 0},
    )
    made = go(config)
    split = made.card["splits"]["train"]
    assert (split["tokens"], split["tokens_cut_off"], split["sentences_cut"]) == (906, 0, 1)
    _, ids = originals(made.train)
    assert (ids[:30, 1] == IDS["un"]).all()
    pairs = go(make_config("a.txt", source={"document": "line"}, sequence_length=32))
    assert pairs.card["splits"]["train"]["tokens_cut_off"] < 150


def test_special_tokens_inside_the_text_are_never_hidden(go, write, make_config):
    write("a.txt", "\n".join(f"Good [MASK] film. Very [SEP] bad {n} film." for n in "abcdefgh" * 30))
    made = go(make_config("a.txt", source={"document": "line"}, sequence_length=32))
    rows, _ = originals(made.train)
    labels = rows.labels[rows.labels != IGNORED]
    assert len(labels) > 200
    assert not np.isin(labels, [IDS[token] for token in ("[MASK]", "[SEP]", "[CLS]", "[UNK]", "[PAD]")]).any()


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("One sentence. Two.", {}, "next_sentence: the train text has one document"),
        ("One\nTwo\nThree", {}, "next_sentence: the train text has no document of several sentences"),
        ("", {"masking": {"next_sentence": False}}, r"data\.train: there is no text"),
        ("One. Two.\nThree. Four.", {"sequence_length": 4}, "4 is no length for masked-lm"),
        (
            "One. Two.\nThree. Four.",
            {"heldout": {"sources": [{"path": "held.txt", "document": "line"}]}},
            "the heldout text has one document",
        ),
    ],
)
def test_text_that_gives_no_pairs_says_so(go, write, make_config, tmp_path, content, options, message):
    write("a.txt", content)
    write("held.txt", "Three. Four.")
    with pytest.raises(DataError, match=message):
        go(make_config("a.txt", source={"document": "line"}, **options))
    left = [path for path in (tmp_path / "cache" / "data").glob("*") if path.suffix != ".lock"]
    assert left == []


def test_a_tokenizer_without_a_mask_token(go, corpus, make_config, tmp_path, bert_folder):
    folder = tmp_path / "maskless"
    shutil.copytree(bert_folder, folder)
    content = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**content, "mask_token": None}))
    with pytest.raises(DataError, match=r"lacks a token for: mask \(\[MASK\]\)"):
        go(make_config(**corpus), folder=folder)


def test_ids_and_random_tokens_beyond_the_embedding(go, corpus, make_config):
    """T25: a token of the text, and one that may be put into it."""
    with pytest.raises(DataError, match=r"^a\.txt:\d+: token '.+' has id \d+, but the embedding has 25 rows"):
        go(make_config(**corpus), rows=25)
    with pytest.raises(DataError, match=f"ids up to {ROWS - 1}, the model {ROWS - 1} rows: a random token"):
        go(make_config(**corpus), rows=ROWS - 1)
    sure = make_config(**corpus, masking={"random": 0.0})
    assert "no text here uses the ids beyond" in go(sure, rows=ROWS - 1).card["warnings"][0]


def test_a_full_disk_leaves_nothing(go, corpus, make_config, tmp_path, monkeypatch):
    append = MaskedWriter.append

    def full(self, rows):
        append(self, rows)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MaskedWriter, "append", full)
    with pytest.raises(StorageError, match=r"No space left on device; needed are [\d,]+ bytes"):
        go(make_config(**corpus))
    assert [path for path in (tmp_path / "cache" / "data").glob("*") if path.suffix != ".lock"] == []


def test_masks_stay_when_the_hiding_is_read_back(go, corpus, make_config):
    """The folder alone says how its rows are masked."""
    made = go(make_config(**corpus), seed=9)
    assert made.train.meta.hiding == replace(made.train.meta.hiding)
    assert made.train.meta.hiding.seed == 9
    assert made.train.meta.hiding.special_ids == tuple(range(5))


def test_many_random_pairs_are_warned_of(go, write, make_config):
    write("a.txt", "\n".join(["Good film. Bad book.", *stories(3), *(["Good."] * 60)]))
    warnings = go(make_config("a.txt", source={"document": "line"})).card["warnings"]
    assert any("random ones, not half: many documents are too short" in warning for warning in warnings)


def test_text_of_which_nothing_can_be_hidden_is_refused(write, go, make_config):
    """A tokenizer that knows no word of it: training would run and learn nothing."""
    write("a.txt", "\n".join("いろは。 にほへと。" for _ in range(20)))
    config = make_config(path="a.txt", source={"document": "line"}, sequence_length=16)
    with pytest.raises(DataError, match=r"nothing of the train text can be predicted: 100\.0% of its tokens"):
        go(config)
