"""A tiny random transformers model of every supported family, and the same weights in kitae's decoder."""

from typing import Any

import torch
import transformers

from kitae.model.config import DecoderConfig
from kitae.model.decoder import Decoder
from kitae.parallel.assembly import assemble

SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LLAMA3 = {"rope_theta": 500000.0, **SCALING}
"""The newer spelling, of transformers 5."""
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama2": ("Llama", {"num_key_value_heads": 4}),
    # The older spelling of rope, which every version of transformers reads.
    "llama3": ("Llama", {"rope_theta": 500000.0}),
    "llama3.1": ("Llama", {"rope_theta": 500000.0, "rope_scaling": SCALING}),
    "llama3.2": ("Llama", {"rope_theta": 500000.0, "rope_scaling": SCALING, "tie_word_embeddings": True}),
    "llama-linear": ("Llama", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "llama-biases": ("Llama", {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 1}),
    "llama-head-dim": ("Llama", {"hidden_size": 64, "head_dim": 24}),
    "smollm2": (
        "Llama",
        {"hidden_size": 36, "num_attention_heads": 9, "num_key_value_heads": 3, "tie_word_embeddings": True},
    ),
    "mistral": ("Mistral", {"sliding_window": None, "head_dim": 12}),
    "mistral-window": ("Mistral", {"sliding_window": 7}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2-window": ("Qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "qwen3-window": (
        "Qwen3",
        {
            "head_dim": 8,
            "attention_bias": True,
            "tie_word_embeddings": True,
            "use_sliding_window": True,
            "sliding_window": 6,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
}


def rope_of(config: Any) -> dict[str, object]:
    """Rotary settings as transformers reads them: since version 5 in one dict with the base."""
    return getattr(config, "rope_parameters", None) or {
        "rope_theta": config.rope_theta,
        **(getattr(config, "rope_scaling", None) or {"rope_type": "default"}),
    }


def reference(case: str, seed: int = 0) -> Any:
    """A transformers model in which every parameter, norms and biases too, has random values of its own."""
    family, changes = CASES[case]
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **changes})
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if "norm" in name else 0.0
            parameter.normal_(centre, 0.12, generator=generator)
    return model


def same_in_kitae(model: Any, dtype: torch.dtype = torch.float32) -> Decoder:
    """A kitae decoder that holds the transformers model's weights."""
    tensors = dict(model.state_dict())
    config = DecoderConfig.from_hf(model.config.to_dict())
    decoder = Decoder(config, tied=config.tie_word_embeddings, dtype=dtype)
    parameters = dict(decoder.named_parameters())
    with torch.no_grad():
        for layout in decoder.layouts:
            local = assemble(layout, lambda name, box: tensors[name][box.slices()], dtype)
            parameters[layout.name].copy_(local)
    return decoder


def positions(ids: torch.Tensor) -> torch.Tensor:
    """0, 1, 2, ... in every row of [B, S]."""
    return torch.arange(ids.shape[1]).expand_as(ids)


def random_ids(*shape: int, vocab_size: int = 99, seed: int = 1) -> torch.Tensor:
    """Token ids that depend only on the seed."""
    return torch.randint(0, vocab_size, shape, generator=torch.Generator().manual_seed(seed))
