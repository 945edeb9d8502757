"""What an update consists of, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from measured_update import work_for

from kitae import catalog
from kitae.plan.parts import body, causal_pairs, optimizer, product, update_counts, vocabulary
from kitae.plan.step_time import flops_by_kind

DECODER = dict(catalog.preset("llama-10m").config)
BERT = dict(catalog.preset("bert-mini").config)


def test_products_are_those_of_the_flops_by_kind():
    work = work_for(DECODER, length=128, global_batch_size=16, micro_batch_size=8)
    kinds = flops_by_kind(work)
    counts = update_counts(work)
    assert counts["product.flop"] == 2 * (kinds["attention"] + kinds["mlp"])
    assert counts["vocabulary.flop"] == 2 * kinds["head"]
    assert counts["product.call"] == 2 * 8 * 4


def test_a_cut_halves_products_and_vocabulary():
    work = work_for(DECODER, length=128, global_batch_size=8, micro_batch_size=8)
    whole, half = update_counts(work), update_counts(replace(work, tensor_parallel=2))
    for name in ("product.flop", "vocabulary.flop", "causal.flop", "decoder.inner"):
        assert half[name] == whole[name] / 2
    assert half["decoder.state"] == whole["decoder.state"]


def test_blocks_of_128_queries_meet_the_keys_before_their_end():
    assert causal_pairs(64) == 64 * 64
    assert causal_pairs(256) == 128 * 128 + 128 * 256
    assert causal_pairs(256, 1) == 2 * 128 * 128
    assert causal_pairs(384, 129) == 128 * 128 + 2 * 128 * 256


def test_whole_layers_again_are_a_third_more_and_the_loss_is_not():
    once = work_for(DECODER, length=64, global_batch_size=8, micro_batch_size=8)
    again = replace(once, recompute="full")
    assert body(again)["product.flop"] == pytest.approx(4 / 3 * body(once)["product.flop"])
    assert vocabulary(again) == vocabulary(once)


def test_a_classifier_has_no_vocabulary_and_masks_have_few_targets():
    classes = {**BERT, "architectures": ["BertForSequenceClassification"]}
    classifier = work_for(
        classes, objective="classification", length=64, global_batch_size=8, micro_batch_size=8
    )
    assert vocabulary(classifier) == {}
    masked = work_for(BERT, objective="masked-lm", length=128, global_batch_size=8, micro_batch_size=8)
    assert vocabulary(masked)["vocabulary.logit"] == masked.targets * masked.vocabulary
    assert body(masked)["dropped.score"] == 4 * 8 * masked.heads * 128 * 128
    assert "dropped.score" not in body(replace(masked, attention_dropout=False))


def test_copies_share_the_optimizer_where_rows_are_shared():
    work = work_for(DECODER, length=64, global_batch_size=8, micro_batch_size=8)
    alone = optimizer(work)["adamw.number"]
    assert optimizer(replace(work, data_parallel=2))["adamw.number"] == alone
    assert optimizer(replace(work, data_parallel=2, zero1=True))["adamw.number"] == alone / 2
    assert optimizer(replace(work, precision="bf16-sr"))["rounding.number"] == alone


def test_three_products_of_a_linear_layer():
    assert product(10, 3, 5) == {
        "product.call": 1,
        "product.flop": 6 * 150,
        "product.weight": 15,
        "product.state": 80,
    }


def test_long_fused_attention_has_constants_of_its_own():
    work = work_for(DECODER, length=1024, global_batch_size=1, micro_batch_size=1, precision="bf16")
    assert body(work)["long.score"] == 8 * work.heads * 1024 * 1025 / 2
    assert "causal.score" in body(replace(work, length=512))
    assert "causal.score" in body(replace(work, precision="fp32"))


def test_a_mask_of_documents_costs_where_rows_are_long():
    work = work_for(DECODER, length=1024, global_batch_size=1, micro_batch_size=1, precision="bf16")
    masked = replace(work, document_mask=True)
    assert body(masked)["long.score"] == 8 * work.heads * 1024**2
    short, plain = (body(replace(one, length=256))["causal.score"] for one in (masked, work))
    assert short == plain
