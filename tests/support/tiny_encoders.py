"""A tiny random BERT of transformers with every head, and the same weights in kitae's encoder."""

from typing import Any

import torch
import transformers

from kitae.model.encoder import Encoder
from kitae.model.encoder_config import EncoderConfig
from kitae.parallel.assembly import assemble

SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 160,
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "pad_token_id": 0,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("BertModel", {}),
    "mlm": ("BertForMaskedLM", {"layer_norm_eps": 1e-5}),
    "pretraining": ("BertForPreTraining", {}),
    "classification": ("BertForSequenceClassification", {"num_labels": 3}),
    "classification-types": ("BertForSequenceClassification", {"num_labels": 2, "type_vocab_size": 1}),
}
"""By name: the class, and what differs from the sizes."""


def reference(case: str, seed: int = 0, **changes: Any) -> Any:
    """A transformers model in which every parameter, norms and biases too, has random values of its own."""
    name, fields = CASES[case]
    config = transformers.BertConfig(**{**SIZES, **fields, **changes}, architectures=[name])
    model = getattr(transformers, name)(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            centre = 1.0 if "LayerNorm.weight" in parameter_name else 0.0
            parameter.normal_(centre, 0.12, generator=generator)
    return model


def same_in_kitae(model: Any, dtype: torch.dtype = torch.float32) -> Encoder:
    """A kitae encoder that holds the transformers model's weights."""
    tensors = dict(model.state_dict())
    encoder = Encoder(EncoderConfig.from_hf(model.config.to_dict()), dtype=dtype)
    parameters = dict(encoder.named_parameters())
    with torch.no_grad():
        for layout in encoder.layouts:
            local = assemble(layout, lambda name, box: tensors[name][box.slices()], dtype)
            parameters[layout.name].copy_(local)
    return encoder


def rows(count: int, length: int, types: int = 2, seed: int = 1) -> tuple[torch.Tensor, ...]:
    """Ids (never the padding's), token types [B, S], and lengths [B]: each row 3 shorter than the last."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, SIZES["vocab_size"], (count, length), generator=generator)
    token_types = torch.randint(0, types, (count, length), generator=generator)
    lengths = torch.tensor([max(1, length - 3 * row) for row in range(count)])
    return ids, token_types, lengths


def attention_mask(ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """What transformers takes for lengths."""
    return (torch.arange(ids.shape[1]) < lengths[:, None]).long()
