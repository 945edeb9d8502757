from __future__ import annotations

from pathlib import Path

import pytest
import torch
from encoder_folders import PROMPTS, bert_folder, config_of, renamed, through_kitae, with_tensors
from hf_case import all_tensors, assert_same, edit_json, hf_folder, rewrite
from tiny_encoders import CASES
from transformers import BertModel

from kitae.checkpoint.encoder_proof import source_outputs, stock_from, stock_outputs
from kitae.checkpoint.hf import HfSource, read_json
from kitae.checkpoint.model_folder import load_decoder, load_model, open_model
from kitae.checkpoint.proof import prove_folder
from kitae.checkpoint.surgery import adapted_model
from kitae.errors import ProofError, RecipeError, WeightsError
from kitae.model.encoder import Encoder
from kitae.model.init import full_tensor
from kitae.model.targets import target_config


@pytest.mark.parametrize("case", CASES)
def test_every_head_goes_out_as_it_came_in(tmp_path: Path, case: str) -> None:
    """Same tensors, and hidden states and logits of the exported folder as in stock transformers."""
    folder = bert_folder(tmp_path / "in", case)
    result = through_kitae(folder, tmp_path / "out")
    assert_same(all_tensors(result), all_tensors(folder))
    proof = prove_folder(result, PROMPTS, 1e-5)
    assert proof.max_difference == max(proof.differences) <= 1e-5
    assert len(proof.differences) == 3
    assert proof.generated == ((), (), ())
    assert proof.rounding == (0, 0, 0)


def test_a_bare_encoder_may_lack_its_pooler(tmp_path: Path) -> None:
    config = bert_folder(tmp_path / "with", "none") and config_of(tmp_path / "with")
    folder = tmp_path / "without"
    BertModel.from_pretrained(tmp_path / "with", add_pooling_layer=False).save_pretrained(folder)
    edit_json(folder / "config.json", architectures=config["architectures"])
    model = open_model(folder)
    assert not model.model_config.pooler
    assert not any("pooler" in name for name in model.names)
    assert prove_folder(through_kitae(folder, tmp_path / "out"), PROMPTS, 1e-5)


def test_a_head_of_its_own_is_refused_and_a_copy_of_the_embedding_is_none(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "in", "mlm", tie_word_embeddings=False)
    embedding = all_tensors(folder)["bert.embeddings.word_embeddings.weight"]
    with_tensors(folder, cls__predictions__decoder__weight=embedding + 1)
    with pytest.raises(
        WeightsError, match=r"decoder.weight differs from the embedding; kitae trains a bert only"
    ):
        open_model(folder)
    with_tensors(folder, cls__predictions__decoder__weight=embedding.clone())
    assert open_model(folder).notes == (
        "cls.predictions.decoder.weight equals the embedding to the bit: taken as tied, against config.json",
    )
    result = through_kitae(folder, tmp_path / "out")
    assert config_of(result)["tie_word_embeddings"] is True
    prove_folder(result, PROMPTS, 1e-5)


OLD = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}


@pytest.mark.parametrize("case", ["mlm", "none"])
def test_old_names_and_other_prefixes_are_the_same_model(tmp_path: Path, case: str) -> None:
    """gamma and beta; a head's folder whose encoder has no prefix, and a bare one that has; buffers."""
    folder = bert_folder(tmp_path / "new", case)
    prefix = {"bert.": ""} if case == "mlm" else {"encoder.layer": "bert.encoder.layer"}
    old = renamed(bert_folder(tmp_path / "old", case), {**OLD, **prefix})
    with_tensors(old, bert__embeddings__position_ids=torch.arange(160)[None])
    assert_same(all_tensors(through_kitae(old, tmp_path / "out")), all_tensors(folder))


def test_a_bias_that_is_stored_twice_or_under_its_second_name(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "in", "mlm")
    tensors = all_tensors(folder)
    bias = tensors["cls.predictions.bias"]
    twice = rewrite(
        bert_folder(tmp_path / "twice"), {**tensors, "cls.predictions.decoder.bias": bias.clone()}
    )
    second = renamed(
        bert_folder(tmp_path / "second"), {"cls.predictions.bias": "cls.predictions.decoder.bias"}
    )
    for one in (twice, second):
        assert_same(all_tensors(through_kitae(one, tmp_path / f"{one.name}-out")), tensors)


def test_heads_of_no_use_are_left_and_named(tmp_path: Path) -> None:
    """The folder of a published BERT: a masked language model's config, all pre-training tensors."""
    folder = bert_folder(tmp_path / "in", "pretraining")
    edit_json(folder / "config.json", architectures=["BertForMaskedLM"])
    model = open_model(folder)
    assert model.notes == (
        "left out, as BertForMaskedLM has no such part: bert.pooler.dense.bias, bert.pooler.dense.weight, "
        "cls.seq_relationship.bias, cls.seq_relationship.weight",
    )
    assert load_model(folder).config.head == "mlm"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"bert.encoder.layer.1.output.dense.bias": None},
            "1 of 42 tensors are missing: bert.encoder.layer.1",
        ),
        ({"cls.predictions.bias": None}, "tensors are missing: cls.predictions.bias"),
        ({"bert.encoder.layer.7.output.dense.bias": torch.ones(32)}, "1 tensors are not part of the model"),
        ({"bert.pooled.weight": torch.ones(2)}, "not part of the model .*: bert.pooled.weight"),
        (
            {"cls.predictions.bias": torch.ones(98)},
            r"cls.predictions.bias is \(98,\), config.json needs \(99,\)",
        ),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, change: dict[str, torch.Tensor | None], message: str
) -> None:
    folder = bert_folder(tmp_path / "in", "mlm", num_hidden_layers=2)
    tensors = {**all_tensors(folder), **change}
    rewrite(folder, {name: tensor for name, tensor in tensors.items() if tensor is not None})
    with pytest.raises(WeightsError, match=message):
        open_model(folder)


def test_a_swapped_weight_is_caught(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "in", "classification")
    ours = source_outputs(config_of(folder), HfSource(folder), PROMPTS)
    query, key = (f"bert.encoder.layer.0.attention.self.{one}.weight" for one in ("query", "key"))
    renamed(folder, {query: "held", key: query, "held": key})
    theirs = stock_outputs(stock_from(config_of(folder), HfSource(folder), torch.float32), PROMPTS)
    assert max((one - other).abs().max() for one, other in zip(ours, theirs, strict=True)) > 1e-2
    with_tensors(folder, cls__predictions__bias=torch.ones(99))
    with pytest.raises(ProofError, match="not key for key"):
        prove_folder(folder, PROMPTS)


def test_what_needs_a_decoder_says_so(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "in", "mlm")
    with pytest.raises(WeightsError, match=r"holds an encoder \(model_type: bert\)"):
        load_decoder(folder)
    edit_json(folder / "config.json", model_type="deberta")
    with pytest.raises(WeightsError, match=r"model_type: deberta is not supported; supported: llama, .*bert"):
        open_model(folder)


TARGETS = {
    "mlm": ("masked-lm", {}),
    "pretraining": ("masked-lm", {"next_sentence": True}),
    "classification": ("classification", {"labels": ["bad", "good", "so so"]}),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", ["none", "mlm", "pretraining", "classification"])
def test_any_model_becomes_what_the_objective_needs(tmp_path: Path, case: str, target: str) -> None:
    """Tensors that both have are the source's; missing heads are drawn, surplus ones left, all by name."""
    folder = bert_folder(tmp_path / "in", case)
    objective, options = TARGETS[target]
    config = target_config(read_json(folder / "config.json"), objective, **options)
    model = adapted_model(folder, config, HfSource(folder), seed=7)
    stored = {name.removeprefix("bert."): tensor for name, tensor in all_tensors(folder).items()}
    drawn = [name for name in model.names if name.removeprefix("bert.") not in stored]
    assert all("pooler" in name or "cls." in name or "classifier" in name for name in drawn)
    for name in model.names:
        bare = name.removeprefix("bert.")
        found = model.source.read(name)
        if name not in drawn:
            assert torch.equal(found, stored[bare]), name
        elif name.endswith(("LayerNorm.weight",)):
            assert (found == 1).all()
        elif name.endswith("bias"):
            assert (found == 0).all()
        else:
            assert torch.equal(found, full_tensor(name, tuple(found.shape), "normal", 7, 0.02)), name
    said = " ".join(model.notes)
    left = [name for name in stored if name not in {one.removeprefix("bert.") for one in model.names}]
    assert all(name in said for name in [*drawn, *left])
    assert (said == "") == (not drawn and not left)
    assert isinstance(load_built(model), Encoder)


def load_built(model):
    from kitae.checkpoint.model_folder import build_model

    return build_model(model)


def test_a_classifier_of_other_classes_is_drawn_anew(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "in", "classification")
    config = target_config(read_json(folder / "config.json"), "classification", num_labels=5)
    assert config["id2label"] == {str(n): f"LABEL_{n}" for n in range(5)}
    model = adapted_model(folder, config, HfSource(folder), seed=1)
    assert model.source.tensors()["classifier.weight"].shape == (5, 32)
    assert model.notes == (
        "drawn at random, as there is none to start from: classifier.weight, classifier.bias",
    )
    kept = target_config(read_json(folder / "config.json"), "classification", labels=["a", "b", "c"])
    assert adapted_model(folder, kept, HfSource(folder), seed=1).notes == ()
    assert (kept["id2label"], kept["label2id"]) == (
        {"0": "a", "1": "b", "2": "c"},
        {"a": 0, "b": 1, "c": 2},
    )


def test_surgery_mends_no_encoder(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "in", "none")
    tensors = all_tensors(folder)
    del tensors["encoder.layer.2.output.dense.weight"]
    rewrite(folder, tensors)
    config = target_config(read_json(folder / "config.json"), "masked-lm")
    with pytest.raises(WeightsError, match=r"missing: bert.encoder.layer.2.output.dense.weight"):
        adapted_model(folder, config, HfSource(folder), seed=1)


def test_objectives_and_kinds_must_fit(tmp_path: Path) -> None:
    bert, llama = (
        read_json(one / "config.json") for one in (bert_folder(tmp_path / "b"), hf_folder(tmp_path / "l"))
    )
    assert target_config(llama, "causal-lm") == llama
    with pytest.raises(RecipeError, match=r"objective: causal-lm needs a decoder.*is a bert; change one"):
        target_config(bert, "causal-lm")
    with pytest.raises(RecipeError, match=r"objective: classification needs an encoder.*is a llama"):
        target_config(llama, "classification", num_labels=2)
