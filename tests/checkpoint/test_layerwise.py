from __future__ import annotations

import json

import pytest
import torch
from convert_case import HF
from hf_case import FAMILIES, all_tensors, hf_folder, rewrite
from native_case import DictSource
from nxd_case import FIXTURE
from nxd_models import BASE, LLAMA_8B
from transformers import AutoModelForCausalLM

from kitae.checkpoint.convert_proof import Side, fixed_prompts, prove_logits, prove_values
from kitae.checkpoint.layerwise import _parts, kitae_logits, require_stock_names, stock_logits
from kitae.checkpoint.model_folder import load_decoder, open_model
from kitae.checkpoint.nxd_logits import nxd_logits
from kitae.checkpoint.opened import open_weights
from kitae.errors import ProofError
from kitae.model.config import DecoderConfig


def side(folder):
    model = open_model(folder)
    return Side(model.config, model.decoder_config, model.source, model.tied)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_layer_by_layer_is_the_whole_model(tmp_path, family, tied):
    """To the bit, on both sides; rows are longer than the windows."""
    folder = hf_folder(tmp_path / "model", family, tie_word_embeddings=tied)
    one = side(folder)
    ids = torch.arange(36).view(3, 12) * 7 % 99
    positions = torch.arange(12).repeat(3, 1)
    decoder = load_decoder(folder).eval()
    stock = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        assert torch.equal(
            kitae_logits(one.decoder_config, one.source, one.tied, ids, positions),
            decoder.logits(decoder(ids, positions)),
        )
        assert torch.equal(stock_logits(one.config, one.source, one.tied, ids, positions), stock(ids).logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_large_halves_go_in_parts(tmp_path, family, monkeypatch):
    """As far as they can be cut, with rounding as the only difference; biases would count in each part."""
    from kitae.checkpoint import layerwise

    one = side(hf_folder(tmp_path / "model", family))
    ids, positions = fixed_prompts(one.decoder_config)
    given = (one.decoder_config, one.source, one.tied, ids, positions)
    due = kitae_logits(*given)
    monkeypatch.setattr(layerwise, "_PART_BYTES", 1000)
    parts = [layerwise._parts(one.decoder_config, half) for half in ("attention", "mlp")]
    assert parts == ([1, 1] if family == "llama-biases" else [2, 2])
    assert (kitae_logits(*given) - due).abs().max() < 1e-5


@pytest.mark.parametrize("half", ["attention", "mlp"])
def test_parts_of_an_8b(half):
    config = DecoderConfig.from_hf({**BASE, **LLAMA_8B})
    assert _parts(config, half) == {"attention": 1, "mlp": 4}[half]


def test_ranks_multiply_with_a_few_rows_at_a_time(monkeypatch):
    source = open_weights(FIXTURE / "qkv_kv2", HF).source
    config = DecoderConfig.from_hf(json.loads((HF / "config.json").read_text()))
    due = nxd_logits(config, source, None, *fixed_prompts(config))
    monkeypatch.setattr("kitae.checkpoint.nxd_logits.MULTIPLIED_BYTES", 200)
    assert (nxd_logits(config, source, None, *fixed_prompts(config)) - due).abs().max() < 1e-6


def test_only_one_matrix_has_memory_at_a_time(tmp_path, monkeypatch):
    from kitae.checkpoint import layerwise

    alive = []
    take = layerwise._give

    def give(module, *given):
        take(module, *given)
        alive.append(module)
        assert sum(next(one.parameters()).device.type != "meta" for one in alive) == 1

    monkeypatch.setattr(layerwise, "_give", give)
    one = side(hf_folder(tmp_path / "model", num_hidden_layers=5))
    ids, positions = fixed_prompts(one.decoder_config)
    stock_logits(one.config, one.source, one.tied, ids, positions)
    assert len(alive) == 5 * 9 + 1


@pytest.mark.parametrize("family", ["llama3", "qwen3", "mistral"])
def test_the_proof_passes_and_says_how_near(tmp_path, family):
    one = side(hf_folder(tmp_path / "model", family))
    proof = prove_logits(one, one)
    assert 0 < proof["max_difference"] < 1e-5
    assert len(proof["differences"]["kitae"]) == 3


@pytest.mark.parametrize("name", ["q_proj", "gate_proj", "input_layernorm", "down_proj"])
def test_any_wrong_weight_fails_it(tmp_path, name):
    """Row 6 of the pains: rows in another order, as by a permutation that must not be."""
    one = side(hf_folder(tmp_path / "model"))
    tensors = dict(all_tensors(tmp_path / "model"))
    key = next(key for key in tensors if name in key)
    tensors[key] = tensors[key].flip(0)
    other = Side(one.config, one.decoder_config, DictSource(tensors), one.tied)
    with pytest.raises(ProofError, match=r"logits of kitae and of transformers differ by .* on fixed prompt"):
        prove_logits(other, one)


def test_a_rope_that_only_long_distances_tell_fails_it(tmp_path):
    """T06 in kind: short prompts look fine without the scaling, so one prompt is spread out."""
    one = side(hf_folder(tmp_path / "model", "llama3", max_position_embeddings=4096))
    plain = {**one.config, "rope_parameters": None, "rope_scaling": None, "rope_theta": 500000.0}
    positions = fixed_prompts(one.decoder_config)[1]
    assert positions[1, -1] == 4095
    with pytest.raises(ProofError, match="on fixed prompt 2"):
        prove_logits(Side(plain, DecoderConfig.from_hf(plain), one.source, one.tied), one)


def test_weights_that_are_not_finite_fail_it(tmp_path):
    folder = hf_folder(tmp_path / "model")
    tensors = all_tensors(folder)
    tensors["model.norm.weight"][0] = float("nan")
    rewrite(folder, tensors)
    with pytest.raises(ProofError, match="are not finite"):
        prove_logits(side(folder), side(folder))


def test_names_that_transformers_does_not_know(tmp_path):
    one = side(hf_folder(tmp_path / "model"))
    require_stock_names(one.config, one.source, one.tied)
    tensors = all_tensors(tmp_path / "model")
    tensors["model.layers.0.mlp.up.weight"] = tensors.pop("model.layers.0.mlp.up_proj.weight")
    with pytest.raises(ProofError, match=r"up_proj\.weight"):
        require_stock_names(one.config, DictSource(tensors), one.tied)


def test_prompts_fit_small_models(tmp_path):
    config = open_model(hf_folder(tmp_path / "model", max_position_embeddings=5, vocab_size=3)).decoder_config
    ids, positions = fixed_prompts(config)
    assert ids.shape == positions.shape == (3, 5)
    assert ids.max() == 2
    assert ids.min() == 0
    assert positions.max() == 4


@pytest.mark.parametrize("name", ["qkv_kv2", "qkv_kv2_nxd_xser", "noqkv_tp2"])
def test_real_ranks_compute_what_the_model_computes(name):
    """Files of NxD's own tools, run as they are: no table of heads is used."""
    opened, whole = open_weights(FIXTURE / name, HF), side(HF)
    ids, positions = fixed_prompts(whole.decoder_config)
    due = kitae_logits(whole.decoder_config, whole.source, False, ids, positions)
    found = nxd_logits(whole.decoder_config, opened.source, None, ids, positions)
    assert (due - found).abs().max() < 1e-6
    assert due.abs().max() > 0.1


def test_values_that_read_back_otherwise():
    tensors = {"a": torch.ones(3), "b": torch.ones(2, 2)}
    assert prove_values(DictSource(tensors), DictSource(dict(tensors)), "weights") == 2
    other = {"a": torch.ones(3), "b": torch.tensor([[1.0, 1.0], [1.0, 1.5]]), "c": torch.ones(1)}
    with pytest.raises(ProofError, match=r"weights: 2 of 3 tensors .*b \(with other values, by up to 0\.5\)"):
        prove_values(DictSource(tensors), DictSource(other), "weights")
