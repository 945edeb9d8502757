"""How the plan's numbers are written."""

from __future__ import annotations

import pytest

from kitae.stages.planning import memory_line, readable


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


def test_the_memory_line_holds_every_number():
    plan = {
        "parameters": 134_515_008,
        "precision": "fp32",
        "bytes": {"parameters": 538_060_032, "gradients": 538_060_032, "optimizer": 1_076_120_064},
        "state_bytes": 2_152_240_128,
        "host_memory_bytes": 25_300_000_000,
    }
    assert memory_line(plan) == (
        "134,515,008 parameters in fp32: parameters 538 MB, gradients 538 MB, optimizer 1.08 GB; together "
        "2.15 GB of 25.3 GB, activations come on top"
    )
