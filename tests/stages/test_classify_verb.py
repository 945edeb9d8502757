import json

import pytest
import torch
import yaml
from classifier_case import write_classifier, write_japanese_classifier, write_texts
from japanese_case import linked_dictionary, write_japanese
from job_case import kitae
from transformers import BertForSequenceClassification, BertJapaneseTokenizer, pipeline

TEXTS = ["the good book", "a bad bad film.", "not very unwanted " * 9]


@pytest.fixture(scope="module")
def english(tmp_path_factory):
    return write_classifier(tmp_path_factory.mktemp("english"))


def lines(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_labels_and_scores_are_those_of_the_pipeline(english, capsys):
    options = [word for text in TEXTS for word in ("--text", text)]
    assert kitae("classify", english, *options, "--json", "--batch-size", "2") == 0
    found = lines(capsys)
    stock = pipeline("text-classification", model=str(english))(TEXTS)
    assert [one["label"] for one in found] == [one["label"] for one in stock]
    for ours, theirs in zip(found, stock, strict=True):
        assert ours["score"] == pytest.approx(theirs["score"], abs=1e-5)
        assert sum(ours["scores"].values()) == pytest.approx(1, abs=1e-5)
        assert set(ours["scores"]) == {"negative", "positive"}
    assert [one["text"] for one in found] == TEXTS


def test_lines_for_people(english, capsys):
    assert kitae("classify", english, "--text", "good\n\tbook") == 0
    label, score, text = capsys.readouterr().out.rstrip("\n").split("\t")
    assert label in ("negative", "positive")
    assert 0.5 <= float(score) <= 1
    assert text == "good book"


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv"])
def test_texts_of_a_file(english, tmp_path, capsys, name):
    texts = ["good book", "bad film"]
    write_texts(tmp_path / "a.jsonl", texts)
    (tmp_path / "a.txt").write_text("good book\n\nbad film\n")
    (tmp_path / "a.csv").write_text("id,text\n1,good book\n2,bad film\n")
    assert kitae("classify", english, "--file", tmp_path / name, "--json") == 0
    found = lines(capsys)
    assert [one["text"] for one in found] == texts
    assert found[1]["where"].endswith({"a.txt": ":3", "a.jsonl": ":2", "a.csv": ":3"}[name])


def test_pairs(english, capsys):
    assert kitae("classify", english, "--text", "good", "--text-pair", "bad film", "--json") == 0
    (found,) = lines(capsys)
    stock = pipeline("text-classification", model=str(english))({"text": "good", "text_pair": "bad film"})
    assert found["scores"][stock["label"]] == pytest.approx(stock["score"], abs=1e-5)


def test_pairs_of_a_file(english, tmp_path, capsys):
    (tmp_path / "p.csv").write_text("a,b\ngood,bad film\n")
    assert kitae("classify", english, "--text", "good", "--text-pair", "bad film", "--json") == 0
    (one,) = lines(capsys)
    fields = ("--text-field", "a", "--text-pair-field", "b")
    assert kitae("classify", english, "--file", tmp_path / "p.csv", *fields, "--json") == 0
    (other,) = lines(capsys)
    assert one["scores"] == other["scores"]


def test_a_long_text_is_cut_and_said(english, capsys):
    assert kitae("classify", english, "--text", "good " * 300, "--json") == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["cut_tokens"] == 300 - 158
    assert output.err == "1 texts were longer than the model reads: their ends were cut off\n"


def test_japanese_as_transformers_reads_it(tmp_path, capsys):
    folder = write_japanese_classifier(tmp_path / "ja")
    texts = ["この映画は面白かった。", "料理は冷めていた。"]
    assert kitae("classify", folder, "--text", texts[0], "--text", texts[1], "--json") == 0
    stock = BertForSequenceClassification.from_pretrained(folder)
    given = BertJapaneseTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        expected = stock(**given).logits.softmax(-1).tolist()
    for found, shares in zip(lines(capsys), expected, strict=True):
        assert list(found["scores"].values()) == pytest.approx(shares, abs=1e-5)


def test_a_dictionary_that_lies_elsewhere_now(tmp_path, capsys):
    folder = write_japanese_classifier(tmp_path / "ja")
    write_japanese(folder, mecab_kwargs={"mecab_dic": None, "mecab_option": "-d /gone -r /dev/null"})
    assert kitae("classify", folder, "--text", "今日") == 3
    assert "/gone: not a compiled MeCab dictionary" in capsys.readouterr().err
    here = linked_dictionary(tmp_path / "my dictionary")
    assert kitae("classify", folder, "--text", "今日", "--dictionary", here) == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "give the texts with --text, or a file of them with --file, and not both"),
        (["--text", "a", "--file", "b"], 2, "and not both"),
        (["--text", "a", "--text-pair", "b", "--text-pair", "c"], 2, "--text-pair: 2 for 1 texts"),
        (["--text", " "], 3, "--text: a text is blank"),
        (["--text", "good \udcff"], 3, "a text that is not valid Unicode; give UTF-8"),
        (["--file", "nothere.txt"], 3, "nothere.txt: no such file or folder"),
        (["--file", "-"], 3, "--file -: standard input is not read; write the texts into a file first"),
    ],
)
def test_what_makes_no_sense(english, capsys, words, code, message):
    assert kitae("classify", english, *words) == code
    assert message in capsys.readouterr().err


def test_a_pair_for_a_model_without_pairs(tmp_path, capsys):
    folder = write_classifier(tmp_path / "one", type_vocab_size=1)
    assert kitae("classify", folder, "--text", "good", "--text-pair", "bad") == 3
    assert "one token type (type_vocab_size) and reads no pairs" in capsys.readouterr().err


def test_messages_of_a_file_speak_of_the_options(english, tmp_path, capsys):
    file = write_texts(tmp_path / "a.jsonl", ["good"])
    assert kitae("classify", english, "--file", file, "--text-field", "txt") == 3
    said = capsys.readouterr().err
    assert "there is no field 'txt'; did you mean 'text'? there are: text (--text-field names it)" in said
    file.write_text("good\n")
    assert kitae("classify", english, "--file", file) == 3
    said += capsys.readouterr().err
    assert "not valid JSON" in said
    assert "data." not in said.replace(str(tmp_path), "")


def test_a_path_that_holds_no_classifier(tmp_path, capsys):
    assert kitae("classify", tmp_path / "nothere", "--text", "a") == 4
    assert "is no folder; give a run, a checkpoint or a Hugging Face folder" in capsys.readouterr().err
    masked = write_classifier(tmp_path / "masked", "mlm")
    assert kitae("classify", masked, "--text", "a") == 4
    assert "BertForMaskedLM gives no labels; give a model that was trained with" in capsys.readouterr().err


def test_a_tokenizer_of_another_model(tmp_path, capsys):
    folder = write_classifier(tmp_path / "small", vocab_size=20)
    assert kitae("classify", folder, "--text", "good z") == 3
    assert "but the embedding has 20 rows" in capsys.readouterr().err


RECIPE = {
    "kitae": 1,
    "name": "ja",
    "objective": "classification",
    "model": {"folder": "model"},
    "data": {
        "train": [{"path": "a.jsonl"}],
        "heldout": {"fraction": 0.3},
        "labels": {"values": {"良": "good", "悪": "bad"}},
        "normalisation": "nfkc",
        "sequence_length": 12,
        "workers": 0,
    },
    "optimizer": {"learning_rate": 1e-3},
    "training": {"duration": "3 steps", "global_batch_size": 4},
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A finished run of a Japanese classifier, from raw text on."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "cache"))
    write_japanese_classifier(tmp_path / "model")
    lines = [{"text": f"{n}番目の本は{word}い。", "label": word} for n in range(8) for word in "良悪"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in lines))
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(RECIPE, allow_unicode=True))
    assert kitae("run", "recipe.yaml") == 0
    return tmp_path / "runs/ja"


def test_a_run_its_checkpoint_and_its_export_say_the_same(run, capsys):
    """Through all stages, and then through stock transformers."""
    (checkpoint,) = (run / "checkpoints").glob("step-*3")
    text = "二番目の本は悪い。"
    capsys.readouterr()
    for path in (run, checkpoint, run / "export"):
        assert kitae("classify", path, "--text", text, "--json") == 0
    found = lines(capsys)
    assert found[0]["scores"] == found[1]["scores"]
    assert found[0]["scores"] == pytest.approx(found[2]["scores"], abs=1e-6)
    assert set(found[0]["scores"]) == {"good", "bad"}
    (stock,) = pipeline("text-classification", model=str(run / "export"))(text)
    assert stock["label"] == found[0]["label"]
    assert stock["score"] == pytest.approx(found[0]["score"], abs=1e-5)


def test_a_run_reads_texts_as_it_was_trained(run, capsys):
    """Its normalisation, and the length of its rows."""
    capsys.readouterr()
    assert kitae("classify", run, "--text", "良い本だ。" * 9, "--json") == 0
    assert lines(capsys)[0]["cut_tokens"] > 0
    assert kitae("classify", run / "export", "--text", "良い本だ。" * 9, "--json") == 0
    assert lines(capsys)[0]["cut_tokens"] == 0


def test_a_run_reads_texts_as_in_its_last_phase(run, capsys):
    phases = [{"name": "short"}, {"name": "long", "data": {"sequence_length": 40}}]
    (run / "recipe.yaml").write_text(yaml.safe_dump({**RECIPE, "phases": phases}, allow_unicode=True))
    capsys.readouterr()
    assert kitae("classify", run, "--text", "良い本だ。" * 40, "--json") == 0
    (longer,) = lines(capsys)
    (run / "recipe.yaml").write_text(yaml.safe_dump(RECIPE, allow_unicode=True))
    assert kitae("classify", run, "--text", "良い本だ。" * 40, "--json") == 0
    assert lines(capsys)[0]["cut_tokens"] == longer["cut_tokens"] + 28


def test_the_export_names_the_dictionary(run):
    settings = json.loads((run / "export/tokenizer_config.json").read_text())
    assert settings["mecab_kwargs"] == {"mecab_dic": "ipadic"}
    config = json.loads((run / "export/config.json").read_text())
    assert config["id2label"] == {"0": "bad", "1": "good"}
    assert config["architectures"] == ["BertForSequenceClassification"]
