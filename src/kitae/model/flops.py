"""Floating-point operations of training, by formula; what utilisation is divided by."""

from __future__ import annotations

from kitae.model.config import DecoderConfig
from kitae.model.encoder_config import EncoderConfig


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


def encoder_train_flops_per_token(config: EncoderConfig, sequence_length: int, predictions: int = 0) -> int:
    """FLOPs of one token's forward and backward pass through an encoder, by the convention above.

    The heads of a row are shared out to its `sequence_length` tokens: `predictions` tokens go through the one
    over the vocabulary, one through the pooler. Without heads and with intermediate size 4 H, a row takes
    12 L H S (6 H + S), the formula of the field's BERT-Large figures.
    """
    hidden, layers = config.hidden_size, config.num_layers
    matrices = layers * (4 * hidden**2 + 2 * hidden * config.intermediate_size)
    attention = 12 * layers * hidden * sequence_length
    of_row = 6 * predictions * (hidden**2 + config.vocab_size * hidden) if config.predicts_tokens else 0
    of_row += 6 * hidden**2 if config.pooler else 0
    return 6 * matrices + attention + round(of_row / sequence_length)
