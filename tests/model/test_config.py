import dataclasses

import pytest
import transformers
from tiny_decoders import CASES, LLAMA3, SIZES, rope_of

from kitae.errors import WeightsError
from kitae.model.config import DecoderConfig

LLAMA = {"model_type": "llama", **SIZES}


def hf_config(case):
    family, changes = CASES[case]
    return getattr(transformers, f"{family}Config")(**{**SIZES, **changes})


@pytest.mark.parametrize("case", CASES)
def test_what_we_write_is_the_same_model_to_us_and_to_transformers(case, tmp_path):
    """T07, T11: theta, scaling, head_dim and windows survive both directions."""
    theirs = hf_config(case)
    config = DecoderConfig.from_hf(theirs.to_dict())
    assert DecoderConfig.from_hf(config.to_hf()) == config
    theirs.__class__(**config.to_hf()).save_pretrained(tmp_path)
    again = transformers.AutoConfig.from_pretrained(tmp_path)
    assert DecoderConfig.from_hf(again.to_dict()) == config
    assert rope_of(again) == rope_of(theirs)


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2", "Qwen3"])
def test_left_out_fields_mean_what_they_mean_to_transformers(family):
    needed = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    sizes = {**{name: SIZES[name] for name in needed}, "num_attention_heads": 32, "hidden_size": 64}
    theirs = getattr(transformers, f"{family}Config")(**sizes)
    ours = DecoderConfig.from_hf({"model_type": family.lower(), **sizes})
    ids = {"bos_token_id": None, "eos_token_ids": ()}
    assert dataclasses.replace(DecoderConfig.from_hf(theirs.to_dict()), **ids) == ours


def test_theta_in_every_spelling():
    """T07."""
    spellings = (
        {"rope_theta": 500000.0},
        {"rope_theta": 500000.0, "rope_scaling": None},
        {"rope_theta": 500000.0, "rope_scaling": {"type": "default"}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    )
    for spelling in spellings:
        config = DecoderConfig.from_hf({**LLAMA, **spelling})
        assert (config.rope.kind, config.rope.theta) == ("default", 500000.0)
        assert config.to_hf()["rope_theta"] == 500000.0


def test_scaling_in_every_spelling():
    old = {name: value for name, value in LLAMA3.items() if name not in ("rope_type", "rope_theta")}
    wanted = DecoderConfig.from_hf({**LLAMA, "rope_parameters": LLAMA3})
    for key in ("type", "rope_type"):
        values = {"rope_theta": 500000.0, "rope_scaling": {**old, key: "llama3"}}
        assert DecoderConfig.from_hf({**LLAMA, **values}) == wanted
    assert wanted.rope.factor == 8.0
    assert wanted.rope.original_max_position_embeddings == 32


def test_llama2_and_llama3_sizes():
    config = DecoderConfig.from_hf(
        {**LLAMA, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
    )
    assert (config.head_dim, config.num_heads, config.num_kv_heads) == (128, 32, 8)
    assert {config.qkv_bias, config.out_bias, config.mlp_bias, config.qk_norm} == {False}
    assert config.windows == (None,) * 3


def test_head_dim_is_kept():
    """T11: hidden 64, heads 4, head_dim 24."""
    config = DecoderConfig.from_hf({**LLAMA, "hidden_size": 64, "head_dim": 24})
    assert config.head_dim == 24
    assert config.to_hf()["head_dim"] == 24


def test_windows_by_family():
    def windows(**fields):
        return DecoderConfig.from_hf({**LLAMA, **fields}).windows

    assert windows(model_type="mistral") == (4096,) * 3
    assert windows(model_type="mistral", sliding_window=None) == (None,) * 3
    assert windows(model_type="qwen2", sliding_window=8) == (None,) * 3
    sliding = {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8}
    assert windows(**sliding, max_window_layers=2) == (None, None, 8)
    assert windows(**sliding, layer_types=["sliding_attention", "full_attention", "full_attention"]) == (
        8,
        None,
        None,
    )


def test_several_end_tokens():
    assert DecoderConfig.from_hf({**LLAMA, "eos_token_id": [2, 7]}).eos_token_ids == (2, 7)
    assert DecoderConfig.from_hf({**LLAMA, "eos_token_id": 0}).to_hf()["eos_token_id"] == 0
    assert DecoderConfig.from_hf({**LLAMA, "eos_token_id": [2, 7]}).to_hf()["eos_token_id"] == [2, 7]


BAD = {
    "T08: long/short factors": (
        {"rope_scaling": {"rope_type": "longrope", "long_factor": [1.0], "short_factor": [1.0]}},
        "rope_scaling.rope_type: longrope is not supported; supported: default, linear, llama3",
    ),
    "old spelling": (
        {"rope_scaling": {"type": "yarn", "factor": 4.0}},
        "rope_scaling.type: yarn is not supported",
    ),
    "new spelling": (
        {"rope_parameters": {"rope_type": "dynamic"}},
        "rope_parameters.rope_type: dynamic is not",
    ),
    "factor": ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor: None where a number above 0"),
    "by layer": (
        {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
        "supported: one mapping for all",
    ),
    "partial": ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: 0.5 is not supported"),
    "partial, new": (
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}},
        "rope_parameters.partial_rotary_factor: 0.25 is not supported",
    ),
    "activation": ({"hidden_act": "gelu"}, "hidden_act: 'gelu' is not supported; supported: 'silu'"),
    "dropout": ({"attention_dropout": 0.1}, "attention_dropout: 0.1 is not supported; supported: 0"),
    "quantised": ({"quantization_config": {"bits": 4}}, "quantization_config: {'bits': 4} is not supported"),
    "family": (
        {"model_type": "gpt2"},
        "model_type: gpt2 is not supported; supported: llama, mistral, qwen2, qwen3",
    ),
    "families": ({"model_type": ["llama"]}, "model_type: ['llama'] is not supported"),
    "depth": ({"num_hidden_layers": 10**12}, "num_hidden_layers: 1000000000000 is more than any model has"),
    "theta": ({"rope_theta": "5e5"}, "rope_theta: '5e5' where a number"),
    "end": ({"eos_token_id": [2, "</s>"]}, "eos_token_id: [2, '</s>'] where an id or a list of ids"),
    "no family": ({"model_type": None}, "model_type: None is not supported"),
    "missing": ({"intermediate_size": None}, "intermediate_size is missing"),
    "text": ({"hidden_size": "32"}, "hidden_size: '32' where a whole number"),
    "true": ({"num_hidden_layers": True}, "num_hidden_layers: True where a whole number"),
    "groups": ({"num_key_value_heads": 3}, "num_attention_heads: 4 is no multiple of num_key_value_heads 3"),
    "head size": ({"hidden_size": 34}, "hidden_size: 34 is no multiple of num_attention_heads (4)"),
    "odd head": ({"head_dim": 7}, "head_dim: 7 is odd"),
    "eps": ({"rms_norm_eps": "tiny"}, "rms_norm_eps: 'tiny' where a number"),
    "window": ({"model_type": "mistral", "sliding_window": 0}, "sliding_window: 0 where a whole number"),
    "types": (
        {"model_type": "qwen3", "use_sliding_window": True, "layer_types": ["full_attention"]},
        "layer_types: 1 entries for num_hidden_layers 3",
    ),
    "type": (
        {
            "model_type": "qwen3",
            "use_sliding_window": True,
            "layer_types": ["full_attention", "linear_attention"] * 2,
        },
        "layer_types: 4 entries",
    ),
    "odd type": (
        {"model_type": "qwen3", "use_sliding_window": True, "layer_types": ["linear_attention"] * 3},
        "layer_types: linear_attention is not supported",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_not_supported_is_named(case):
    changes, message = BAD[case]
    with pytest.raises(WeightsError) as caught:
        DecoderConfig.from_hf({**LLAMA, **changes})
    assert str(caught.value).startswith("config.json: ")
    assert message in str(caught.value)


def test_harmless_fields_are_ignored():
    harmless = {
        "pretraining_tp": 2,
        "attention_dropout": 0.0,
        "quantization_config": None,
        "use_cache": True,
        "x": 1,
    }
    assert DecoderConfig.from_hf({**LLAMA, **harmless}) == DecoderConfig.from_hf(LLAMA)
