from __future__ import annotations

import json
import os
import shutil

import pytest
import torch
from convert_case import HF, converted, left_in, quick, with_tokenizer
from gguf_case import write_gguf
from hf_case import OLDER_ROPE, PROMPTS, all_tensors, as_bin, assert_same, edit_json, hf_folder, rewrite
from nxd_case import FIXTURE
from safetensors.torch import load_file
from tiny_decoders import rope_of
from transformers import AutoModelForCausalLM, AutoTokenizer

from kitae.checkpoint.convert_record import RECORD
from kitae.checkpoint.opened import open_weights
from kitae.checkpoint.resume import find_checkpoint
from kitae.errors import ProofError, RecipeError, WeightsError


@pytest.fixture
def folder(tmp_path):
    return hf_folder(tmp_path / "model", "llama3")


def test_safetensors_to_kitae_and_back(tmp_path, folder):
    with_tokenizer(folder)
    _, said = converted(folder, tmp_path / "kitae", to="kitae")
    assert any(line.startswith("proof: 21 tensors used once and equal") for line in said)
    _, said = converted(tmp_path / "kitae", tmp_path / "back")
    assert "to hf: what all tools read" in "".join(said)
    assert "proof: stock transformers loads the folder and generates 5 tokens" in said
    assert_same(all_tensors(folder), all_tensors(tmp_path / "back"))


def test_the_result_is_a_complete_folder(tmp_path, folder):
    """Rows 7 and 21 of the pains, T07, T15: config whole, tokenizer as it was, transformers loads it."""
    with_tokenizer(folder)
    edit_json(folder / "config.json", own_key={"a": 1})
    edit_json(folder / "generation_config.json", temperature=0.7, do_sample=True)
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    result = quick(folder, tmp_path / "out", to="hf", dtype="bf16")
    config, before = (json.loads((one / "config.json").read_text()) for one in (result, folder))
    assert config == {**OLDER_ROPE, **before, "dtype": "bfloat16"}
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["own_key"] == {"a": 1}
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (result / name).read_bytes() == (folder / name).read_bytes()
    generation = json.loads((result / "generation_config.json").read_text())
    assert generation == json.loads((folder / "generation_config.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(result, dtype="auto")
    assert model.dtype == torch.bfloat16
    assert rope_of(model.config)["factor"] == 8.0
    assert AutoTokenizer.from_pretrained(result)("fox")["input_ids"]


def test_a_config_without_class_and_a_model_without_generation_config(tmp_path, folder):
    config = json.loads((folder / "config.json").read_text())
    del config["architectures"]
    (folder / "config.json").write_text(json.dumps({**config, "bos_token_id": 3, "eos_token_id": [4, 5]}))
    (folder / "generation_config.json").unlink()
    result = quick(folder, tmp_path / "out", to="hf")
    assert json.loads((result / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    generation = json.loads((result / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 3, "eos_token_id": [4, 5]}


def test_bin_single_and_sharded(tmp_path, folder):
    due = all_tensors(folder)
    shutil.copytree(folder, tmp_path / "sharded")
    quick(as_bin(folder), tmp_path / "one")
    quick(as_bin(tmp_path / "sharded", shards=3), tmp_path / "three")
    for name in ("one", "three"):
        assert_same(due, all_tensors(tmp_path / name))


def test_gguf_brings_config_and_tokenizer(tmp_path):
    folder = hf_folder(tmp_path / "model", vocab_size=262, rms_norm_eps=1e-6)
    file = write_gguf(tmp_path / "model.gguf", folder)
    _, said = converted(file, tmp_path / "out", dtype="fp32")
    assert "GGUF, F32, dequantised to fp32" in said[0]
    assert_same(all_tensors(folder), all_tensors(tmp_path / "out"))
    assert AutoTokenizer.from_pretrained(tmp_path / "out")("the")["input_ids"]


def test_a_lone_state_dict_needs_a_config(tmp_path):
    """What NxD's own converter writes."""
    file = shutil.copy(HF / "full_state.pt", tmp_path / "checkpoint.pt")
    with pytest.raises(WeightsError, match=r"carries no config\.json.*--config FILE"):
        converted(file, tmp_path / "out")
    quick(file, tmp_path / "out", config=HF)
    assert_same(all_tensors(HF), all_tensors(tmp_path / "out"))


def test_a_tied_head_is_written_once(tmp_path):
    """Row 4 of the pains, T01 and T02: tensors decide, and the index names only what is there."""
    folder = hf_folder(tmp_path / "model", tie_word_embeddings=True)
    tensors = all_tensors(folder)
    rewrite(folder, {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"].clone()})
    edit_json(folder / "config.json", tie_word_embeddings=False)
    _, said = converted(folder, tmp_path / "out", to="hf")
    assert "note: lm_head.weight equals the embedding to the bit: taken as tied, against config.json" in said
    assert_same(tensors, all_tensors(tmp_path / "out"))
    assert json.loads((tmp_path / "out/config.json").read_text())["tie_word_embeddings"] is True


def test_a_dtype_that_cannot_hold_the_values(tmp_path, folder):
    tensors = all_tensors(folder)
    tensors["model.norm.weight"][3] = 1e6
    rewrite(folder, tensors)
    with pytest.raises(
        WeightsError, match=r"model\.norm\.weight has values up to 1e\+06, which float16 cannot"
    ):
        converted(folder, tmp_path / "out", to="hf", dtype="fp16")
    assert left_in(tmp_path) == ["model"]


def test_casting_is_proven_against_the_cast(tmp_path, folder):
    record, _ = converted(folder, tmp_path / "out", to="hf", dtype="bf16")
    assert record.proof["max_difference"] < 1e-5
    due = {name: tensor.bfloat16() for name, tensor in all_tensors(folder).items()}
    assert_same(due, all_tensors(tmp_path / "out"))


def test_values_that_are_not_finite_stop_before_the_target_is_there(tmp_path, folder):
    tensors = all_tensors(folder)
    tensors["model.layers.1.mlp.up_proj.weight"][2, 3] = float("nan")
    rewrite(folder, tensors)
    with pytest.raises(
        WeightsError, match=r"layers\.1\.mlp\.up_proj\.weight holds values that are not finite"
    ):
        converted(folder, tmp_path / "out", to="hf", proof="values")
    assert left_in(tmp_path) == ["model"]
    quick(folder, tmp_path / "out", to="hf", proof="none")
    assert torch.isnan(all_tensors(tmp_path / "out")["model.layers.1.mlp.up_proj.weight"][2, 3])


def test_the_same_conversion_is_skipped(tmp_path, folder):
    first = quick(folder, tmp_path / "out", to="hf")
    inode = (first / "model.safetensors").stat().st_ino
    record, said = converted(folder, first, to="hf", proof="values")
    assert said[-1] == f"{first} is already the complete result of this conversion: skipped"
    assert record.proof["level"] == "values"
    assert (first / "model.safetensors").stat().st_ino == inode


def test_a_skipped_one_is_proven_further_when_asked(tmp_path, folder):
    quick(folder, tmp_path / "out", to="hf", proof="none")
    record, said = converted(folder, tmp_path / "out", to="hf")
    assert "proof: none then, logits now" in said
    assert record.proof["level"] == "logits"
    assert json.loads((tmp_path / "out" / RECORD).read_text())["proof"]["level"] == "logits"


@pytest.mark.parametrize("case", ["dtype", "source", "result"])
def test_another_result_is_left_alone(tmp_path, folder, case):
    out = quick(folder, tmp_path / "out", to="hf")
    options = {"to": "hf"}
    if case == "dtype":
        options["dtype"] = "bf16"
        match = "another conversion .dtype: None there, bf16 now."
    elif case == "source":
        rewrite(folder, all_tensors(folder))
        os.utime(folder / "model.safetensors", ns=(1, 1))
        match = r"another conversion .source files: .*model\.safetensors changed"
    else:
        (out / "model.safetensors").write_bytes(b"other")
        match = "its files were changed since"
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(WeightsError, match=match):
        converted(folder, out, **options)
    assert before == {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.mark.parametrize(
    ("file", "change", "match"),
    [
        ("config.json", {"pad_token_id": 500}, r"cannot build the model of config\.json: \w"),
        ("generation_config.json", {"eos_token_id": "x"}, "cannot (load|compute with) .*out: "),
    ],
)
def test_what_transformers_cannot_use_fails_the_proof(tmp_path, folder, file, change, match):
    """Told of the place that was asked for, in one line; without that proof it goes through."""
    edit_json(folder / file, **change)
    with pytest.raises(ProofError, match=f"^stock transformers {match}") as error:
        converted(folder, tmp_path / "out", to="hf")
    assert ".tmp-" not in str(error.value)
    assert "\n" not in str(error.value)
    assert left_in(tmp_path) == ["model"]
    assert quick(folder, tmp_path / "out", to="hf").is_dir()


def test_a_link_to_nowhere_beside_the_weights(tmp_path, folder):
    (folder / "tokenizer.json").symlink_to("gone")
    assert "tokenizer.json" not in left_in(quick(folder, tmp_path / "out", to="hf"))


def test_a_dry_run_writes_nothing_and_says_what_it_would(tmp_path, folder):
    record, said = converted(folder, tmp_path / "out", to="hf", dtype="bf16", dry_run=True)
    assert record is None
    assert left_in(tmp_path) == ["model"]
    line = next(line for line in said if "layers.0.mlp.down_proj" in line)
    assert line.split()[1:] == ["32", "x", "48", "bfloat16", "3,072", "bytes"]
    assert f"{tmp_path / 'out'} needs " in said[-1]


def test_a_dry_run_of_nxd_shows_the_files(tmp_path):
    _, said = converted(HF, tmp_path / "out", to="nxd", tp=4, pp=2, dry_run=True)
    files = [line for line in said if line.startswith("model/")]
    assert [line.split(",")[0] for line in files] == [
        f"model/dp_rank_00_tp_rank_00_pp_rank_0{s}.pt to dp_rank_00_tp_rank_03_pp_rank_0{s}.pt"
        for s in (0, 1)
    ]
    shown = next(line for line in said if "layers.0.self_attn.qkv_proj.weight_k" in line)
    assert shown.split()[1:4] == ["4", "x", "32"]


def test_a_tokenizer_from_elsewhere(tmp_path, folder):
    (tmp_path / "other").mkdir()
    with_tokenizer(tmp_path / "other")
    _, said = converted(folder, tmp_path / "out", to="kitae", tokenizer=tmp_path / "other", proof="none")
    assert f"tokenizer: from {tmp_path / 'other'}" in said
    assert (tmp_path / "out/tokenizer/tokenizer.json").is_file()
    with pytest.raises(WeightsError, match="holds no file of a tokenizer"):
        converted(folder, tmp_path / "two", to="kitae", tokenizer=folder)


def test_a_config_that_contradicts_the_source(tmp_path, folder):
    other = hf_folder(tmp_path / "other", rope_theta=7.0)
    with pytest.raises(
        WeightsError, match=r"other/config\.json says rope .*7\.0.* has its own config, .*500000"
    ):
        converted(folder, tmp_path / "out", to="hf", config=other)


def test_a_kitae_checkpoint_keeps_what_export_needs(tmp_path, folder):
    quick(folder, tmp_path / "kitae", to="kitae", dtype="bf16")
    checkpoint = find_checkpoint(tmp_path / "kitae")
    assert checkpoint.step == 0
    assert checkpoint.state["dtype"] == "bfloat16"
    assert checkpoint.config["rope_theta" if "rope_theta" in checkpoint.config else "rope_parameters"]
    opened = open_weights(tmp_path / "kitae")
    assert opened.optimizer is None
    assert opened.generation_config == json.loads((folder / "generation_config.json").read_text())


def test_pickles_are_not_run(tmp_path, folder):
    as_bin(folder)
    torch.save({"model.norm.weight": torch.ones(3), "x": Exception}, folder / "pytorch_model.bin")
    with pytest.raises(WeightsError, match="runs no code from files of weights"):
        converted(folder, tmp_path / "out")


def test_flags_about_nxd_where_nothing_is(tmp_path, folder):
    with pytest.raises(
        RecipeError, match=r"--tp and --xser: says how NxD files are cut, but neither .* --to nxd"
    ):
        converted(folder, tmp_path / "out", to="hf", tp=4, xser=True)


def test_transformers_gives_the_same_text_before_and_after(tmp_path, folder):
    result = quick(quick(folder, tmp_path / "nxd", to="nxd", tp=1), tmp_path / "out")
    models = [AutoModelForCausalLM.from_pretrained(one).eval() for one in (folder, result)]
    with torch.inference_mode():
        for prompt in PROMPTS:
            before, after = (model(torch.tensor([prompt])).logits for model in models)
            assert torch.equal(before, after)


def test_fixture_state_is_what_the_real_tool_wrote(tmp_path):
    result = quick(FIXTURE / "qkv_kv2", tmp_path / "out", config=HF)
    assert_same(torch.load(HF / "full_state.pt"), load_file(result / "model.safetensors"))
