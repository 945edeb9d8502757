import pytest

from kitae import catalog
from kitae.errors import RecipeError
from kitae.recipe.model_shape import hf_config_of, preset_shape
from kitae.recipe.sources import ModelConfig


def test_the_config_is_complete_and_takes_ids_from_the_tokenizer():
    config = hf_config_of(ModelConfig(preset="llama3.1-8b"), 1000, bos_token_id=1, eos_token_id=2)
    assert config["model_type"] == "llama"
    assert (config["vocab_size"], config["bos_token_id"], config["eos_token_id"]) == (1000, 1, 2)
    assert (config["head_dim"], config["rope_theta"], config["tie_word_embeddings"]) == (128, 500000.0, False)
    assert config["rope_scaling"] == {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }  # fmt: skip


def test_the_shape_overrides_the_preset_and_leaves_the_catalogue_alone():
    shape = {
        "num_layers": 3,
        "num_heads": 8,
        "num_kv_heads": 1,
        "hidden_size": 96,
        "tie_embeddings": False,
        "vocab_size": 600,
    }
    config = hf_config_of(ModelConfig(preset="llama-tiny", shape=shape), 512)
    assert (config["num_hidden_layers"], config["num_attention_heads"], config["num_key_value_heads"]) == (
        3,
        8,
        1,
    )
    assert (config["hidden_size"], config["head_dim"], config["vocab_size"]) == (96, 12, 600)
    assert config["tie_word_embeddings"] is False
    config["rope_theta"] = 7
    assert catalog.preset("llama-tiny").config["num_hidden_layers"] == 2
    assert hf_config_of(ModelConfig(preset="llama-tiny"), 512)["rope_theta"] == 10000.0


def test_head_dim_may_differ_from_hidden_over_heads():
    """T11: hidden 64, heads 4, head_dim 24."""
    shape = {"hidden_size": 64, "num_heads": 4, "head_dim": 24}
    assert hf_config_of(ModelConfig(preset="llama-tiny", shape=shape), 512)["head_dim"] == 24
    assert hf_config_of(ModelConfig(preset="qwen3-0.6b", shape={"hidden_size": 256}), 512)["head_dim"] == 128


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"num_heads": 5}, r"hidden_size \(64\) is not a multiple of num_heads \(5\)"),
        ({"num_kv_heads": 3}, r"num_heads \(4\) is not a multiple of num_kv_heads \(3\)"),
        ({"hidden_size": 60}, r"head_dim \(15\) is odd"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(shape, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(preset="llama-tiny", shape=shape)


def test_an_embedding_smaller_than_the_tokenizer_is_refused():
    with pytest.raises(
        RecipeError, match="100 embedding rows are fewer than the tokenizer's 512 ids; leave it out"
    ):
        hf_config_of(ModelConfig(preset="llama-tiny", shape={"vocab_size": 100}), 512)


def test_the_shape_for_people_has_every_size():
    values = preset_shape(ModelConfig(preset="llama-tiny", shape={"num_layers": 5}))
    assert values["vocab_size"] is None, "it is the tokenizer's"
    assert {key: value for key, value in values.items() if key != "vocab_size"} == {
        "hidden_size": 64, "intermediate_size": 176, "num_layers": 5, "num_heads": 4, "num_kv_heads": 2,
        "head_dim": 16, "max_positions": 512, "rope_theta": 10000.0, "tie_embeddings": True,
    }  # fmt: skip


def test_an_encoder_has_its_own_sizes():
    """A BERT: no KV heads, no rotary base and no head of its own; padding is the tokenizer's."""
    shape = {
        "hidden_size": 96,
        "num_heads": 3,
        "intermediate_size": 200,
        "max_positions": 64,
        "num_layers": 1,
    }
    model = ModelConfig(preset="bert-tiny", shape=shape)
    config = hf_config_of(model, 600, pad_token_id=3)
    assert (config["hidden_size"], config["num_attention_heads"], config["intermediate_size"]) == (96, 3, 200)
    assert (config["vocab_size"], config["pad_token_id"], config["max_position_embeddings"]) == (600, 3, 64)
    assert "head_dim" not in config
    assert preset_shape(model) == {"vocab_size": None, **shape}
    for field, value in (("num_kv_heads", 1), ("rope_theta", 1.0), ("tie_embeddings", False)):
        with pytest.raises(
            ValueError, match=f"{field} has no meaning for bert-tiny, an encoder; take it out"
        ):
            ModelConfig(preset="bert-tiny", shape={field: value})
    with pytest.raises(ValueError, match=r"hidden_size \(128\) is not a multiple of num_heads \(3\)"):
        ModelConfig(preset="bert-tiny", shape={"num_heads": 3})
