"""Small inputs with their right values, through `kitae convert`: rows of facts about other converters."""

from __future__ import annotations

import json

import pytest
import torch
from convert_case import converted, left_in, quick
from hf_case import LLAMA3_ROPE, all_tensors, assert_same, edit_json, hf_folder, rewrite
from safetensors import safe_open
from tiny_decoders import rope_of
from transformers import AutoConfig, AutoModelForCausalLM

from kitae.checkpoint.hf import HfSource
from kitae.errors import WeightsError

HEADS = {
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 32,
    "head_dim": 4,
    "vocab_size": 96,
}


def ranks(folder, tp):
    return [torch.load(folder / f"model/dp_rank_00_tp_rank_{r:02d}_pp_rank_00.pt") for r in range(tp)]


def test_t01_a_tied_model_whose_index_names_a_head(tmp_path):
    """T01: no empty tensor, the index names what the files hold, and the logits are the same."""
    folder = hf_folder(tmp_path / "model", tie_word_embeddings=True, max_shard_size="10KB")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    index["weight_map"]["lm_head.weight"] = sorted(set(index["weight_map"].values()))[1]
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    record, _ = converted(folder, tmp_path / "out", to="hf")
    assert record.proof["max_difference"] < 1e-5
    assert HfSource(tmp_path / "out").tensors().keys() == all_tensors(folder).keys()
    assert all(tensor.numel() for tensor in all_tensors(tmp_path / "out").values())
    assert same_logits(folder, tmp_path / "out")


def same_logits(*folders):
    """Whether stock transformers computes the same from both, to the bit."""
    one, other = (AutoModelForCausalLM.from_pretrained(folder)(torch.arange(9)[None]) for folder in folders)
    return torch.equal(one.logits, other.logits)


def test_t02_a_tied_flag_with_an_equal_head(tmp_path):
    """T02: accepted."""
    folder = hf_folder(tmp_path / "model", tie_word_embeddings=True)
    tensors = all_tensors(folder)
    rewrite(folder, {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"].clone()})
    assert_same(tensors, all_tensors(quick(folder, tmp_path / "out", to="hf")))


@pytest.mark.parametrize("tied", [True, False])
def test_row_4_tied_and_untied_through_tensor_parallel_files(tmp_path, tied):
    """Row 4 of the pains: to tp 2 and back, with all keys and the same logits."""
    folder = hf_folder(tmp_path / "model", tie_word_embeddings=tied, **HEADS)
    quick(quick(folder, tmp_path / "nxd", to="nxd", tp=2), tmp_path / "out")
    assert_same(all_tensors(folder), all_tensors(tmp_path / "out"))
    # NxD's model has a parameter for the head in any case.
    assert all("lm_head.weight" in rank for rank in ranks(tmp_path / "nxd", 2))
    assert same_logits(folder, tmp_path / "out")
    assert json.loads((tmp_path / "out/config.json").read_text())["tie_word_embeddings"] is tied


@pytest.mark.parametrize("tp", [4, 8])
def test_t03_row_5_several_files_are_as_one(tmp_path, tp):
    """T03 and row 5 of the pains: 2 KV heads on more ranks, with q, k and v in several files, any order."""
    one = hf_folder(tmp_path / "one", **HEADS)
    many = hf_folder(tmp_path / "many", max_shard_size="6KB", **HEADS)
    index = json.loads((many / "model.safetensors.index.json").read_text())
    files = {index["weight_map"][f"model.layers.0.self_attn.{n}_proj.weight"] for n in "qkv"}
    assert len(files) > 1
    names = list(reversed(index["weight_map"].items()))
    (many / "model.safetensors.index.json").write_text(json.dumps({**index, "weight_map": dict(names)}))
    quick(one, tmp_path / "a", to="nxd", tp=tp)
    quick(many, tmp_path / "b", to="nxd", tp=tp)
    for left, right in zip(ranks(tmp_path / "a", tp), ranks(tmp_path / "b", tp), strict=True):
        assert_same(left, right)
    back = [quick(tmp_path / name, tmp_path / f"{name}-back") for name in "ab"]
    assert_same(all_tensors(back[0]), all_tensors(one))
    assert same_logits(one, back[1])


@pytest.mark.parametrize("order", ["trn1", "trn2"])
def test_t04_query_heads_meet_their_kv_head(tmp_path, order):
    """T04: 8 query and 2 KV heads on 8 ranks: query head h is with KV head h // 4."""
    folder = hf_folder(tmp_path / "model", **HEADS)
    tensors = all_tensors(folder)
    for layer in (0, 1):
        for name, heads in (("q", 8), ("k", 2), ("v", 2)):
            own = torch.arange(float(heads)).repeat_interleave(4)[:, None].expand(-1, 32)
            tensors[f"model.layers.{layer}.self_attn.{name}_proj.weight"] = own.clone()
    rewrite(folder, tensors)
    quick(folder, tmp_path / "nxd", to="nxd", tp=8, order=order)
    met = set()
    for rank in ranks(tmp_path / "nxd", 8):
        q, k, v = (rank[f"model.layers.0.self_attn.qkv_proj.weight_{name}"].unique() for name in "qkv")
        assert k == v == q // 4
        met.add(int(q))
    assert met == set(range(8))
    assert_same(tensors, all_tensors(quick(tmp_path / "nxd", tmp_path / "out")))


def test_t06_t07_rope_settings_arrive(tmp_path):
    """T06 and T07: base and scaling are those of the source after both directions."""
    rope = {**LLAMA3_ROPE, "original_max_position_embeddings": 8192}
    folder = hf_folder(
        tmp_path / "model", "llama3", head_dim=16, rope_scaling=rope, max_position_embeddings=131072
    )
    quick(quick(folder, tmp_path / "nxd", to="nxd", tp=1), tmp_path / "out")
    found = rope_of(AutoConfig.from_pretrained(tmp_path / "out"))
    assert (found["rope_theta"], found["factor"], found["rope_type"]) == (500000.0, 8.0, "llama3")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    due = [
        1,
        0.193922745,
        0.0376060309,
        0.00729266474,
        0.000524846161,
        3.4281022e-05,
        6.64786987e-06,
        1.28917317e-06,
    ]
    assert torch.allclose(model.model.rotary_emb.inv_freq, torch.tensor(due), rtol=1e-6)


def test_t08_a_kind_of_rope_that_is_not_supported(tmp_path):
    """T08: named, exit code not 0, nothing written."""
    folder = hf_folder(tmp_path / "model")
    edit_json(
        folder / "config.json",
        rope_parameters=None,
        rope_scaling={"type": "longrope", "long_factor": [1.0], "short_factor": [1.0]},
    )
    with pytest.raises(WeightsError, match="longrope is not supported"):
        converted(folder, tmp_path / "out", to="kitae")
    assert left_in(tmp_path) == ["model"]


def test_t09_row_46_each_tensor_with_its_own_constant(tmp_path):
    """T09 and row 46 of the pains: nothing takes another's place, through every format."""
    folder = hf_folder(tmp_path / "model", **HEADS)
    constant = {n: torch.full_like(t, float(i)) for i, (n, t) in enumerate(all_tensors(folder).items())}
    rewrite(folder, constant)
    step = folder
    for name, options in (("a", {"to": "nxd", "tp": 4}), ("b", {"to": "kitae"}), ("c", {"to": "hf"})):
        step = quick(step, tmp_path / name, **options)
    assert_same(constant, all_tensors(step))


def test_t10_gate_and_up(tmp_path):
    """T10: each rank holds half of gate and half of up, never rank 0 the one and rank 1 the other."""
    folder = hf_folder(tmp_path / "model", **HEADS)
    tensors = all_tensors(folder)
    for name in tensors:
        if "gate_proj" in name:
            tensors[name] = torch.ones_like(tensors[name])
        if "up_proj" in name:
            tensors[name] = torch.full_like(tensors[name], 2.0)
    rewrite(folder, tensors)
    quick(folder, tmp_path / "nxd", to="nxd", tp=2)
    for rank in ranks(tmp_path / "nxd", 2):
        rows = rank["model.layers.1.mlp.gate_up_proj.weight"][:, 0]
        assert rows.tolist() == [1.0] * 24 + [2.0] * 24


def test_t11_heads_that_are_not_hidden_size_over_heads(tmp_path):
    """T11: hidden 64, 4 heads of 24."""
    sizes = {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 24,
        "vocab_size": 96,
    }
    folder = hf_folder(tmp_path / "model", **sizes)
    quick(quick(folder, tmp_path / "nxd", to="nxd", tp=4), tmp_path / "out")
    assert all_tensors(tmp_path / "out")["model.layers.0.self_attn.q_proj.weight"].shape == (96, 64)
    assert json.loads((tmp_path / "out/config.json").read_text())["head_dim"] == 24


def test_t13_an_index_that_lies(tmp_path):
    """T13: tensor and file are named before anything is written."""
    folder = hf_folder(tmp_path / "model", max_shard_size="10KB")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    name = "model.norm.weight"
    wrong = next(file for file in index["weight_map"].values() if file != index["weight_map"][name])
    index["weight_map"][name] = wrong
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(WeightsError, match=rf"not in their file: {name} in {wrong}"):
        converted(folder, tmp_path / "out", to="hf")
    assert left_in(tmp_path) == ["model"]


def test_t14_t15_metadata(tmp_path):
    """T14 and T15: an empty metadata object loads, and ours says what stock transformers needs."""
    folder = hf_folder(tmp_path / "model")
    tensors = all_tensors(folder)
    from safetensors.torch import save_file

    save_file(tensors, folder / "model.safetensors", {})
    quick(folder, tmp_path / "out", to="hf")
    with safe_open(tmp_path / "out/model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_row_21_one_folder_that_stock_transformers_loads(tmp_path):
    """Row 21 of the pains: for tp 1, 2 and 4, the proof ends with stock transformers and five tokens."""
    folder = hf_folder(tmp_path / "model", **HEADS)
    for tp in (1, 2, 4):
        nxd = quick(folder, tmp_path / f"nxd{tp}", to="nxd", tp=tp)
        record, _ = converted(nxd, tmp_path / f"out{tp}")
        assert [len(one) for one in record.proof["generated"]] == [5, 5, 5]


def test_row_47_a_tokenizer_that_knows_more_ids_than_there_are_rows(tmp_path, capsys):
    """Row 47 of the pains: caught where it is looked at."""
    from convert_case import with_tokenizer
    from job_case import kitae

    folder = with_tokenizer(hf_folder(tmp_path / "model"))
    assert kitae("weights", folder) == 0
    assert "99 rows; the tokenizer knows" in (text := capsys.readouterr().out)
    assert "MORE than rows" in text
