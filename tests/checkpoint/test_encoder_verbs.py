"""`kitae convert` and `kitae weights` with encoders."""

from __future__ import annotations

import pytest
import torch
from convert_case import converted
from encoder_folders import bert_folder, config_of, renamed
from hf_case import all_tensors, as_bin, assert_same, rewrite
from job_case import kitae

from kitae.checkpoint import convert_proof, encoder_proof
from kitae.checkpoint.describe import describe, lines
from kitae.checkpoint.opened import open_weights
from kitae.errors import ProofError, WeightsError


@pytest.mark.parametrize("case", ["none", "mlm", "pretraining", "classification"])
def test_to_kitae_and_back(tmp_path, case):
    """Every head, proven both ways against transformers."""
    folder = bert_folder(tmp_path / "in", case)
    record, said = converted(folder, tmp_path / "kitae", to="kitae")
    assert record.proof["max_difference"] <= 1e-5
    assert len(record.proof["prompts"]) == 3
    assert len(record.proof["prompts"][0]) == 160
    assert any(line.startswith("proof: hidden states and logits of kitae differ") for line in said)
    _, said = converted(tmp_path / "kitae", tmp_path / "back")
    assert "proof: stock transformers loads the folder" in said
    assert_same(all_tensors(tmp_path / "back"), all_tensors(folder))
    assert config_of(tmp_path / "back")["architectures"] == config_of(folder)["architectures"]
    assert not (tmp_path / "back" / "generation_config.json").exists()


def test_an_old_folder_becomes_a_new_one_in_another_dtype(tmp_path):
    """pytorch_model.bin with gamma and beta; what no head needs stays behind and is named."""
    folder = bert_folder(tmp_path / "in", "mlm")
    due = {name: tensor.bfloat16() for name, tensor in all_tensors(folder).items()}
    rewrite(folder, {**all_tensors(folder), "cls.seq_relationship.bias": torch.ones(2)})
    as_bin(renamed(folder, {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}))
    _, said = converted(folder, tmp_path / "out", to="hf", dtype="bf16")
    assert "note: left out, as BertForMaskedLM has no such part: cls.seq_relationship.bias" in said
    assert_same(all_tensors(tmp_path / "out"), due)


def test_a_wrong_reading_is_not_published(tmp_path, monkeypatch):
    folder = bert_folder(tmp_path / "in", "classification")
    plain = encoder_proof.source_outputs
    monkeypatch.setattr(
        convert_proof.encoder_proof, "source_outputs", lambda *a: [one + 1e-3 for one in plain(*a)]
    )
    with pytest.raises(ProofError, match=r"logits of kitae and of transformers differ by 0.001"):
        converted(folder, tmp_path / "out", to="hf")
    assert not (tmp_path / "out").exists()


def test_nxd_files_hold_decoders(tmp_path):
    with pytest.raises(
        WeightsError, match=r"holds an encoder \(model_type: bert\), which predicts no next token"
    ):
        converted(bert_folder(tmp_path / "in"), tmp_path / "out", to="nxd", tp=2)


def test_what_a_folder_is(tmp_path):
    folder = bert_folder(tmp_path / "in", "classification", id2label={0: "bad", 1: "good", 2: "so so"})
    facts = describe(open_weights(folder))
    shown = dict(line.strip().split(None, 1) for line in lines(facts)[1:])
    assert shown["class"] == "BertForSequenceClassification"
    assert shown["labels"] == "bad, good, so so"
    assert shown["model"].startswith(
        "bert, 3 layers, hidden 32, intermediate 48, 4 query and 4 KV heads of 8"
    )
    assert shown["vocabulary"] == "99 rows; no tokenizer beside it"
    assert "head" not in shown
    assert "rope" not in shown
    count = sum(tensor.numel() for tensor in all_tensors(folder).values())
    assert facts["parameters"] == count
    masked = describe(open_weights(bert_folder(tmp_path / "masked", "mlm")))
    assert (masked["head"], masked["labels"]) == ("tied to the embedding", None)


def test_encoders_are_compared_whatever_their_names(tmp_path, capsys):
    """A bare encoder beside a masked language model with the same one, stored under old names."""
    masked = bert_folder(tmp_path / "masked", "mlm")
    own = {name: one for name, one in all_tensors(masked).items() if name.startswith("bert.")}
    bare = rewrite(bert_folder(tmp_path / "bare", "none"), own)
    renamed(bare, {"bert.": "", "LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"})
    assert kitae("weights", masked, bare) == 1
    *_, said = capsys.readouterr().out.splitlines()
    assert said == f"{len(own) + 5} tensors: {len(own)} equal to the bit, 5 only in the first"
    assert kitae("weights", bare, bare) == 0
