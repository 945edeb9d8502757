"""How the plan's numbers are written."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kitae.recipe.parallel import ParallelConfig
from kitae.stages.planning import memory_line, memory_plan, readable


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (999, "999 bytes"),
        (1000, "1 kB"),
        (538_060_032, "538 MB"),
        (2_152_240_128, "2.15 GB"),
        (64 * 10**9, "64 GB"),
    ],
)
def test_bytes_are_readable(size_bytes: int, text: str):
    assert readable(size_bytes) == text


PLAN = {
    "parameters": 134_515_008,
    "precision": "fp32",
    "data_parallel_size": 1,
    "tensor_parallel_size": 1,
    "zero1": False,
    "bytes": {"parameters": 538_060_032, "gradients": 538_060_032, "optimizer": 1_076_120_064},
    "state_bytes": 2_152_240_128,
    "host_memory_bytes": 25_300_000_000,
}


def test_the_memory_line_holds_every_number():
    assert memory_line(PLAN) == (
        "134,515,008 parameters in fp32: parameters 538 MB, gradients 538 MB, optimizer 1.08 GB; together "
        "2.15 GB of 25.3 GB, activations come on top"
    )


def test_the_line_of_several_processes_has_those_of_one_and_of_all():
    plan = {**PLAN, "data_parallel_size": 3, "tensor_parallel_size": 2, "zero1": True}
    assert memory_line(plan) == (
        "134,515,008 parameters in fp32, 6 processes: 3 x the model that share the optimizer state, each on "
        "2. A process: parameters 538 MB, gradients 538 MB, optimizer 1.08 GB; together 2.15 GB. "
        "All: 12.9 GB of 25.3 GB, activations come on top"
    )
    assert "3 x the model, each on 2" in memory_line({**plan, "zero1": False})


def test_the_plan_counts_what_one_process_holds():
    """Tied, vocabulary 11, hidden 4, inner 8, one layer, 2 heads; tp 2, and two rows of three in dp 2."""
    config = {
        "model_type": "llama",
        "vocab_size": 11,
        "hidden_size": 4,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 16,
        "tie_word_embeddings": True,
    }
    start = SimpleNamespace(config=config, tied=True)
    parallel = ParallelConfig(data_parallel_size=2, tensor_parallel_size=2, zero1=True)
    plan = memory_plan(start, "bf16", parallel)
    norms = 3 * 4
    assert plan["parameters"] == 11 * 4 + (4 + 2 + 2 + 4) * 4 + 3 * 8 * 4 + norms
    local = 6 * 4 + (2 + 2 + 2 + 2) * 4 + 3 * 4 * 4 + norms
    own = local // 2
    assert plan["bytes"] == {
        "parameters": 2 * local,
        "gradients": 4 * local,
        "master": 4 * own,
        "optimizer": 8 * own,
    }
    assert plan["state_bytes"] == 6 * local + 12 * own
