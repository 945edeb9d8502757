"""Floating-point operations of training, by formula; what utilisation is divided by."""

from __future__ import annotations

from kitae.model.config import DecoderConfig


def train_flops_per_token(config: DecoderConfig, sequence_length: int) -> int:
    """FLOPs of one token's forward and backward pass in rows of `sequence_length`: 6 N + 12 L A S.

    N counts the weights that multiply: all matrices and the head (tied or not), not the embedding look-up,
    norms or biases; 2 FLOPs forward and 4 backward each. L layers; A = heads x head_dim; S `sequence_length`.
    Attention is counted dense (every query meets S keys), the convention of PaLM (Chowdhery et al., 2022,
    appendix B), whatever the mask leaves out; recomputed activations do not count.
    """
    attention = 12 * config.num_layers * config.num_heads * config.head_dim * sequence_length
    return 6 * multiplied_weights(config) + attention


def multiplied_weights(config: DecoderConfig) -> int:
    """Weights in matrix products: attention, MLP and head."""
    heads = 2 * config.num_heads + 2 * config.num_kv_heads
    layer = config.hidden_size * (heads * config.head_dim + 3 * config.intermediate_size)
    return config.num_layers * layer + config.vocab_size * config.hidden_size
