"""What the plan says a process holds, against what torch's allocator held, and by hand."""

from __future__ import annotations

import pytest
from measured_update import measured_peak, work_for

from kitae import catalog
from kitae.plan.memory import memory_of

DECODER = dict(catalog.preset("llama-tiny").config)
QWEN3 = {**DECODER, "model_type": "qwen3", "head_dim": 16, "architectures": ["Qwen3ForCausalLM"]}
BERT = {**catalog.preset("bert-tiny").config, "vocab_size": 512}
CLASSIFIER = {**BERT, "architectures": ["BertForSequenceClassification"]}
BATCH = {"global_batch_size": 8, "micro_batch_size": 4}
SHAPES = {
    "decoder": (DECODER, {"length": 128, **BATCH}),
    "decoder, selective": (DECODER, {"length": 128, "recompute": "selective", **BATCH}),
    "decoder, autocast": (DECODER, {"precision": "autocast", **BATCH}),
    "decoder, bf16, full": (DECODER, {"precision": "bf16", "recompute": "full", **BATCH}),
    "qwen3, documents, one micro-batch of one row": (
        {**QWEN3, "tie_word_embeddings": False},
        {"length": 256, "document_mask": True, "global_batch_size": 1, "micro_batch_size": 1},
    ),
    "encoder": (BERT, {"objective": "masked-lm", "length": 128, **BATCH}),
    "encoder, full, lamb": (
        BERT,
        {"objective": "masked-lm", "recompute": "full", "optimizer": "lamb", **BATCH},
    ),
    "encoder, classes, bf16-sr": (
        CLASSIFIER,
        {"objective": "classification", "precision": "bf16-sr", **BATCH},
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_peak_is_within_a_tenth_of_what_was_allocated(name: str):
    config, training = SHAPES[name]
    work = work_for(config, **training)
    assert memory_of(work).peak == pytest.approx(measured_peak(work), rel=0.1)
