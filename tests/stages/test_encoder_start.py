"""Encoders from any start: head surgery, presets, runs; and a classifier all the way to its proven export."""

import json
import random
import sys

import pytest
import torch
import yaml
from classifier_case import write_classifier, write_japanese_classifier
from job_case import kitae
from safetensors.torch import load_file
from transformers import pipeline

from kitae.checkpoint.resume import find_checkpoint
from kitae.model.init import full_tensor
from kitae.stages.importing import find_start, import_key
from kitae.stages.job import open_job

WORDS = {"negative": ["bad", "not"], "positive": ["good", "very"]}
COMMON = ["the", "a", "book", "film"]


def write_labelled(path, count, seed):
    """Texts in which half of the words give the label away."""
    draw = random.Random(seed)
    lines = []
    for number in range(count):
        label = list(WORDS)[number % 2]
        words = [draw.choice(WORDS[label] if draw.random() < 0.5 else COMMON) for _ in range(8)]
        lines.append(json.dumps({"text": " ".join(words), "label": label}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def recipe(folder, **changes):
    """A recipe of ten steps of classification, from the folder `model`."""
    write_labelled(folder / "train.jsonl", 60, seed=1)
    write_labelled(folder / "heldout.jsonl", 20, seed=2)
    values = {
        "kitae": 1,
        "name": "tiny",
        "objective": "classification",
        "model": {"folder": "model"},
        "data": {
            "train": [{"path": "train.jsonl"}],
            "heldout": {"sources": [{"path": "heldout.jsonl"}]},
            "sequence_length": 16,
            "workers": 0,
            "labels": {},
        },
        "optimizer": {"learning_rate": 0.002},
        "training": {"duration": "10 steps", "global_batch_size": 8, "micro_batch_size": 4},
        "proof": {"prompts": ["the good book", "a bad film"]},
        **changes,
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


def run(capsys, *words):
    code = kitae(*words)
    output = capsys.readouterr()
    assert code == 0, output.err
    return output.out + output.err


def test_a_bare_encoder_becomes_a_classifier_that_stock_transformers_loads(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    write_classifier(tmp_path / "model", "pretraining")
    said = run(capsys, "run", recipe(tmp_path))
    assert "drawn at random, as there is none to start from: classifier.weight, classifier.bias" in said
    assert "left out, as BertForSequenceClassification has no such part: cls.predictions.bias" in said
    run_folder = tmp_path / "runs" / "tiny"
    config = json.loads((run_folder / "export/config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == {"0": "negative", "1": "positive"}
    assert json.loads((run_folder / "proof.json").read_text())["max_difference"] < 1e-5
    classify = pipeline("text-classification", model=str(run_folder / "export"))
    assert {one["label"] for one in classify(["bad bad not", "good very good"])} <= {"negative", "positive"}
    again = run(capsys, "run", tmp_path / "recipe.yaml")
    assert again.count("skipped, its result is there") == 6


@pytest.fixture
def job(tmp_path, monkeypatch):
    """The job of a recipe with changes, from a model of some head."""
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def made(case="pretraining", **changes):
        if not (tmp_path / "model").exists():
            write_classifier(tmp_path / "model", case)
        return open_job(recipe(tmp_path, **changes), report=lambda line: None)

    return made


MASKED = {"objective": "masked-lm"}


def data_of(**more):
    return {"train": [{"path": "train.jsonl"}], "sequence_length": 16, "workers": 0, **more}


@pytest.mark.parametrize(("pairs", "name"), [(True, "BertForPreTraining"), (False, "BertForMaskedLM")])
def test_the_objective_decides_the_class(job, tmp_path, pairs, name):
    one = job(case="none", **MASKED, data=data_of(masking={"next_sentence": pairs}))
    start = find_start(one)
    assert start.config["architectures"] == [name]
    assert start.config["vocab_size"] == 99
    tensors = start.open()
    words = tensors.read("bert.embeddings.word_embeddings.weight")
    assert torch.equal(
        words, load_file(tmp_path / "model/model.safetensors")["embeddings.word_embeddings.weight"]
    )
    drawn = "cls.predictions.transform.dense.weight"
    assert torch.equal(tensors.read(drawn), full_tensor(drawn, (32, 32), "normal", one.recipe.seed, 0.02))
    assert ("cls.seq_relationship.weight" in tensors.tensors()) == pairs
    assert ("bert.pooler.dense.weight" in tensors.tensors()) == pairs
    assert any("cls.predictions.bias" in note for note in start.notes)


def test_a_preset_is_drawn_from_the_seed(job):
    model = {"preset": "bert-tiny", "shape": {"hidden_size": 32, "num_heads": 2, "intermediate_size": 40}}
    tokenizer = {"tokenizer": {"folder": "model"}}
    labels = {"values": {"negative": 0, "positive": 1}, "names": ["bad", "good"]}
    one = job(model=model, data=data_of(labels=labels, **tokenizer), seed=5)
    start = find_start(one)
    tokens = start.config["vocab_size"]
    assert start.config["label2id"] == {"bad": 0, "good": 1}
    assert start.config["pad_token_id"] == 0
    name = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(start.open().read(name), full_tensor(name, (tokens, 32), "normal", 5, 0.02))
    assert (start.open().read("bert.embeddings.LayerNorm.weight") == 1).all()
    other = job(model=model, data=data_of(labels=labels, **tokenizer), seed=6)
    assert import_key(one) != import_key(other)


def test_keys_follow_the_heads(job):
    """Other class names and other objectives are other models; a re-run is not."""
    named = {"values": {"negative": 0, "positive": 1}}
    jobs = [
        job(data=data_of(labels={**named, "names": ["bad", "good"]})),
        job(data=data_of(labels={**named, "names": ["no", "yes"]})),
        job(**MASKED, data=data_of()),
        job(**MASKED, data=data_of(masking={"next_sentence": False})),
    ]
    keys = [import_key(one) for one in jobs]
    assert len(set(keys)) == 4
    assert keys[0] == import_key(job(data=data_of(labels={**named, "names": ["bad", "good"]})))


def test_a_run_of_one_objective_starts_another(job, tmp_path, capsys):
    """The encoder of a classifier's checkpoint, with the heads of masked-lm drawn anew."""
    job()
    run(capsys, "train", tmp_path / "recipe.yaml")
    trained = find_checkpoint(tmp_path / "runs" / "tiny").source("weights")
    one = job(
        **MASKED,
        name="other",
        model={"run": "runs/tiny"},
        data=data_of(tokenizer={"folder": "model"}),
    )
    start = find_start(one)
    name = "bert.encoder.layer.1.output.dense.weight"
    assert torch.equal(start.open().read(name), trained.read(name))
    assert start.config["architectures"] == ["BertForPreTraining"]
    assert "id2label" not in start.config
    assert any("left out" in note and "classifier.bias" in note for note in start.notes)
    assert any("drawn" in note and "cls.seq_relationship.weight" in note for note in start.notes)


def test_decoders_and_encoders_do_not_mix(job, tmp_path, capsys):
    job()
    data = data_of()
    assert kitae("import", recipe(tmp_path, objective="causal-lm", data=data)) != 0
    assert "objective: causal-lm needs a decoder, such as Llama's" in capsys.readouterr().err


def test_rows_longer_than_the_model_are_refused_before_a_text_is_read(job, tmp_path, capsys):
    """Also those of a later phase, which would stop a training of days in its middle."""
    job()
    phases = [{"name": "short"}, {"name": "long", "data": {"sequence_length": 161}}]
    assert kitae("run", recipe(tmp_path, **MASKED, data=data_of(), phases=phases)) == 2
    said = capsys.readouterr().err
    assert "phase long: data.sequence_length: 161 tokens are more than the 160 positions" in said
    assert not (tmp_path / "cache" / "data").exists()
    assert kitae("run", recipe(tmp_path, data=data_of(sequence_length=200, labels={}))) == 2
    assert "error: data.sequence_length: 200 tokens are more" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({**MASKED, "data": data_of()}, "data.masking.next_sentence"),
        ({"data": data_of(labels={"text_pair_field": "text"})}, "data.labels.text_pair_field"),
    ],
)
def test_pairs_for_a_model_of_one_token_type(job, tmp_path, capsys, changes, setting):
    write_classifier(tmp_path / "model", type_vocab_size=1)
    job()
    assert kitae("run", recipe(tmp_path, **changes)) == 2
    assert f"{setting}: the model has one token type" in capsys.readouterr().err


def test_only_models_that_fit_are_judged(job, tmp_path, capsys):
    """Scores of other classes, or of the same in another order, would be numbers without a meaning."""
    job()
    run(capsys, "train", tmp_path / "recipe.yaml")
    export = tmp_path / "model"
    write_classifier(tmp_path / "same")
    write_classifier(tmp_path / "plain", id2label={"0": "LABEL_0", "1": "LABEL_1"})
    for good in ("same", "plain"):
        assert "accuracy" in run(capsys, "eval", tmp_path / "recipe.yaml", "--model", tmp_path / good)
    write_classifier(tmp_path / "turned", id2label={"0": "positive", "1": "negative"})
    write_classifier(tmp_path / "three", num_labels=3, id2label=None)
    wrong = {
        export: "BertForPreTraining cannot be judged by objective: classification",
        tmp_path / "turned": "its classes are positive, negative, and those of the text negative, positive",
        tmp_path / "three": "its classes are LABEL_0, LABEL_1, LABEL_2, and those of the text",
    }
    for folder, message in wrong.items():
        assert kitae("eval", tmp_path / "recipe.yaml", "--model", folder) == 4
        assert message in capsys.readouterr().err


def test_a_proof_without_mecab_says_what_to_install(job, tmp_path, capsys, monkeypatch):
    """Prepared text needs none, so that a training may begin on a machine that lacks it."""
    write_japanese_classifier(tmp_path / "model")
    job()
    path = recipe(tmp_path, proof={"prompts": ["この映画は面白かった。"]})
    run(capsys, "export", path)
    monkeypatch.setitem(sys.modules, "fugashi", None)
    assert kitae("prove", path) == 3
    assert "package fugashi), which is not installed; pip install 'kitae[ja]'" in capsys.readouterr().err


def test_an_optimizer_of_other_heads_is_refused(job, tmp_path, capsys):
    job()
    run(capsys, "train", tmp_path / "recipe.yaml")
    model = {"run": "runs/tiny", "with_optimizer": True}
    data = data_of(tokenizer={"folder": "model"})
    assert kitae("run", recipe(tmp_path, **MASKED, name="other", model=model, data=data)) == 2
    said = capsys.readouterr().err
    assert "model.with_optimizer: " in said
    assert (
        "is of a BertForSequenceClassification of 2 classes, and a BertForPreTraining is to be trained"
        in said
    )


def test_classes_under_other_names_are_said(job, tmp_path):
    """A classifier to start from keeps its head, whatever its classes are called now."""
    write_classifier(tmp_path / "model")
    names = {"values": {"negative": 0, "positive": 1}, "names": ["bad", "positive"]}
    (note,) = find_start(job(data=data_of(labels=names))).notes
    assert note == "the classifier goes on with its classes under other names: negative as bad"
    assert find_start(job(data=data_of(labels={"values": names["values"], "names": list(WORDS)}))).notes == ()
