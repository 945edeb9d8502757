"""What the plan says a process holds, against what torch's allocator held, and by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from measured_update import measured_peak, recipe_for, work_for

from kitae import catalog
from kitae.model import neuron_attention
from kitae.model.attention import OwnKernel
from kitae.model.memory import state_bytes
from kitae.model.neuron_attention import Asked, choose_attention
from kitae.model.tables import parse_config
from kitae.parallel.rows import share_layouts
from kitae.plan import decoder_memory
from kitae.plan.memory import memory_of
from kitae.plan.published import published_rows
from kitae.plan.work import work_of

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


UNITS = {
    ("none", 1, False): 14.7,
    ("none", 2, False): 9.3,
    ("none", 2, True): 7.3,
    ("none", 4, False): 7.0,
    ("none", 4, True): 4.0,
    ("selective", 1, False): 10.0,
    ("selective", 2, False): 6.0,
    ("selective", 2, True): 5.0,
    ("selective", 4, False): 4.3,
    ("selective", 4, True): 2.8,
    ("full", 1, False): 1.0,
    ("full", 2, False): 1.0,
    ("full", 2, True): 0.5,
    ("full", 4, False): 1.0,
    ("full", 4, True): 0.25,
}
"""What docs/parallel.md says was measured, in units of one hidden state of all tokens."""


@pytest.mark.parametrize(("recompute", "size", "sequence"), UNITS)
def test_a_cut_layer_keeps_what_was_measured(recompute: str, size: int, sequence: bool):
    config = catalog.preset("llama-135m").config
    shape = {**config, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 72}
    whole = work_for(shape, length=256, global_batch_size=2, micro_batch_size=2)
    work = replace(whole, tensor_parallel=size, sequence_parallel=sequence)
    kept = decoder_memory.kept_by_layer(work, recompute) / (512 * 576 * 4)
    assert kept == pytest.approx(UNITS[recompute, size, sequence], rel=0.06)


@pytest.mark.parametrize("copies", [1, 2, 3, 64])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-sr", "autocast"])
def test_the_state_is_that_of_the_layout_table(copies: int, precision: str):
    """Of the first process, whose rows are the most."""
    for size in (1, 2, 4):
        work = work_for(DECODER, precision=precision, **BATCH)
        work = replace(work, tensor_parallel=size, data_parallel=copies, zero1=copies > 1)
        own = share_layouts(work.layouts, copies, 0)
        assert memory_of(work).state == state_bytes(work.layouts, own, precision)


@pytest.mark.parametrize("zero1", [False, True])
def test_state_and_buckets_of_copies(zero1: bool):
    """Two copies: half the moments with ZeRO-1; three buckets each way, of all there is at the most."""
    alone = work_for(DECODER, **BATCH)
    both = replace(alone, data_parallel=2, zero1=zero1)
    one, two = memory_of(alone), memory_of(both)
    assert one.buckets == 0
    assert two.buckets == 2 * 3 * min(both.bucket_bytes, two.state["gradients"])
    assert two.state["gradients"] == one.state["gradients"]
    share = two.state["optimizer"] / one.state["optimizer"]
    assert share == pytest.approx(0.5 if zero1 else 1.0, rel=0.01)


def test_attention_without_a_kernel_keeps_its_probabilities():
    """Llama 3.1 8B over 32 processes: one head of 8,192 x 8,192 in bf16 for each of 32 layers."""
    row = next(row for row in published_rows() if row.name.startswith("Llama 3.1 8B, 4"))
    kernel, plain = memory_of(row.work), memory_of(replace(row.work, scores="kept"))
    assert plain.kept - kernel.kept == 32 * 8192 * 8192 * 2
    again = replace(row.work, recompute="full")
    kept = [memory_of(replace(again, scores=kind)) for kind in ("fused", "kept")]
    assert kept[0].kept == kept[1].kept
    assert kept[1].backward > kept[0].backward


def test_which_attention_a_recipe_gets_is_what_the_chip_is_asked_for():
    """The same answers as `model/neuron_attention.py` gives where its kernel is there."""
    config = parse_config({**DECODER, "head_dim": 64})
    for length, mask, wanted, precision in product(
        (2048, 4096, 3000), (False, True), ("auto", "kernel", "plain"), ("bf16", "fp32")
    ):
        asked = Asked(length, config.head_dim, frozenset(config.windows), precision, mask)
        if wanted == "kernel" and (length % 2048 or precision == "fp32"):
            continue  # refused there
        recipe = recipe_for(
            length=length, document_mask=mask, attention=wanted, precision=precision, micro_batch_size=1
        )
        choice = choose_attention(wanted, "there", asked)
        assert choice is not None
        found = work_of(recipe, config, False, "xla").scores
        assert found == {"kernel": "fused", "plain": "kept"}[choice.kind]
        assert work_of(recipe, config, False, "neuron").scores == "fused"


@pytest.fixture(autouse=True)
def a_kernel_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neuron_attention, "SOURCES", {"there": lambda: OwnKernel(lambda q, k, v: v)})
