import pytest
import torch
import transformers
from tiny_decoders import LLAMA3
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from kitae.model.rope_config import RopeConfig
from kitae.model.rotary import inverse_frequencies, rotary_tables


def test_llama3_frequencies():
    """T06: head_dim 16, theta 500000, factor 8, low 1, high 4, original 8192."""
    rope = RopeConfig(500000.0, "llama3", 8.0, 1.0, 4.0, 8192)
    expected = [
        1,
        0.193922745,
        0.0376060309,
        0.00729266474,
        0.000524846161,
        3.4281022e-05,
        6.64786987e-06,
        1.28917317e-06,
    ]
    torch.testing.assert_close(inverse_frequencies(rope, 16), torch.tensor(expected), rtol=1e-6, atol=0)


@pytest.mark.parametrize("values", [LLAMA3, {"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0}])
def test_scaled_frequencies_equal_those_of_transformers(values):
    scaling = {name: value for name, value in values.items() if name != "rope_theta"}
    config = transformers.LlamaConfig(
        hidden_size=64, num_attention_heads=1, rope_theta=values["rope_theta"], rope_scaling=scaling
    )
    theirs, scale = ROPE_INIT_FUNCTIONS[values["rope_type"]](config, "cpu")
    assert scale == 1.0
    ours = inverse_frequencies(RopeConfig.from_hf({"rope_parameters": values}, 2048), 64)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)


def test_tables_hold_cosine_and_sine_of_position_times_frequency():
    frequencies = inverse_frequencies(RopeConfig(theta=100.0), 4)
    cosine, sine = rotary_tables(frequencies, torch.tensor([[0, 3]]))
    assert cosine.shape == sine.shape == (1, 2, 1, 2)
    torch.testing.assert_close(cosine[0, 1, 0], torch.tensor([3.0, 0.3]).cos())
    torch.testing.assert_close(sine[0, :, 0], torch.tensor([[0.0, 0.0], [3.0, 0.3]]).sin())
