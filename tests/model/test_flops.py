from dataclasses import replace

import pytest
import torch
from tiny_decoders import positions, random_ids, reference, same_in_kitae
from tiny_encoders import reference as encoder_reference
from tiny_encoders import rows as encoder_rows
from tiny_encoders import same_in_kitae as same_encoder
from torch.utils.flop_counter import FlopCounterMode

from kitae import catalog
from kitae.model.encoder_config import EncoderConfig
from kitae.model.flops import encoder_train_flops_per_token, multiplied_weights, train_flops_per_token


@pytest.mark.parametrize("case", ["llama2", "llama-head-dim", "qwen3-window", "smollm2"])
def test_matrix_products_are_counted_exactly(case):
    """What torch counts, attention apart: 2 a weight and token forward, 4 (and 1 % for norms) backward."""
    decoder = same_in_kitae(reference(case))
    ids = random_ids(2, 16)
    with FlopCounterMode(display=False) as forward:
        logits = decoder.logits(decoder(ids, positions(ids)))
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    unit = multiplied_weights(decoder.config) * ids.numel()
    assert products(forward) == 2 * unit
    assert 4 * unit <= products(backward) < 4.04 * unit


def products(counter):
    """FLOPs of two-dimensional products; attention's are batched."""
    counts = counter.get_flop_counts()["Global"]
    return sum(counts.get(operation, 0) for operation in (torch.ops.aten.mm, torch.ops.aten.addmm))


def test_attention_term():
    """Per token and layer: 2 products forward, 4 backward, each 2 x heads x head_dim x keys."""
    config = same_in_kitae(reference("llama-head-dim")).config
    extra = train_flops_per_token(config, 100) - train_flops_per_token(config, 0)
    assert extra == 3 * 6 * 2 * 4 * 24 * 100
    assert train_flops_per_token(config, 0) == 6 * multiplied_weights(config)


def test_smollm2_135m():
    """134,515,008 parameters, of which 49152 x 576 are both look-up and head, and 61 x 576 are norms."""
    base = same_in_kitae(reference("smollm2")).config
    sizes = {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_layers": 30,
        "head_dim": 64,
    }
    config = type(base)(**{**vars(base), **sizes})
    assert multiplied_weights(config) == 134_515_008 - 61 * 576
    assert train_flops_per_token(config, 256) == 6 * 134_479_872 + 12 * 30 * 576 * 256


def test_tied_or_not_is_the_same_work():
    untied, tied = (same_in_kitae(reference(case)).config for case in ("llama3.1", "llama3.2"))
    assert train_flops_per_token(untied, 8) == train_flops_per_token(tied, 8)


@pytest.mark.parametrize("case", ["none", "mlm", "pretraining", "classification"])
def test_an_encoders_products_are_counted_exactly(case):
    """As torch counts them forward, attention and heads of two and three rows apart: 2 of 6 FLOPs."""
    encoder = same_encoder(encoder_reference(case))
    ids, types, lengths = encoder_rows(2, 16)
    places = torch.zeros(2, 5, dtype=torch.long)
    with FlopCounterMode(display=False) as forward:
        hidden = encoder(ids, types, lengths)
        if encoder.head is not None:
            encoder.predictions(hidden, places) @ encoder.head_weight.T
        if encoder.pooler is not None:
            encoder.pooled(hidden)
    attention = 12 * 3 * 32 * 16
    counted = encoder_train_flops_per_token(encoder.config, 16, 5) - attention
    assert products(forward) == counted * ids.numel() / 3


def test_bert_large_is_counted_as_the_field_counts_it():
    """12 L h s (6 h + s) of a row, and the heads on top: 80 predictions through 30,522 rows, and a pooler."""
    sizes = dict(catalog.preset("bert-large").config)
    config = EncoderConfig.from_hf(sizes)
    row = 12 * 24 * 1024 * 512 * (6 * 1024 + 512)
    assert encoder_train_flops_per_token(replace(config, head="mlm", pooler=False), 512) == row / 512
    heads = 6 * (80 * (1024**2 + 30522 * 1024) + 1024**2)
    assert encoder_train_flops_per_token(config, 512, 80) == round((row + heads) / 512)
    assert 1.0 < encoder_train_flops_per_token(config, 512, 80) * 512 / row < 1.02
