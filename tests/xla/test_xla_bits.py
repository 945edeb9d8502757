"""Bits on torch-xla: those of the CPU, without a value that is read back."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("torch_xla")

from kitae.backend.bits import halves_of, reinterpreted
from kitae.backend.table import select
from kitae.model.dropout import Draws, keep_of_tokens
from kitae.parallel.layout import Box
from kitae.train.rounding import KeysThere, RoundingKey, keyed_bits, stochastic_round

pytestmark = pytest.mark.xla
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def backend():
    made = select("xla")
    yield made
    assert made.fallbacks() == []


@pytest.mark.parametrize(("dtype", "integers"), [(torch.float32, torch.int32), (torch.bfloat16, torch.int16)])
def test_numbers_are_looked_at_as_integers_and_back(backend, dtype, integers):
    values = torch.tensor([0.0, -0.0, 1.5, -3.25, torch.inf, 1e-30], dtype=dtype)
    there = reinterpreted(values.to(backend.device), integers)
    back = reinterpreted(there, dtype)
    backend.boundary("bits", outputs=[there, back])
    assert there.dtype == integers
    assert torch.equal(there.cpu(), values.view(integers))
    assert torch.equal(back.cpu().view(integers), values.view(integers))


def test_halves_of_negative_words(backend):
    """torch-xla's `>>` rounds towards zero, which made one dropout bit in 65,536 another one."""
    words = torch.tensor([-1, -65536, -65537, 0x7FFF9999, 0x10000], dtype=torch.int32)
    found = halves_of(words.to(backend.device))
    backend.boundary("bits", outputs=[found])
    assert found.cpu().tolist() == halves_of(words).tolist()


def test_dropout_keeps_the_same_elements(backend):
    keys = Draws(7, 3, torch.arange(64)).keys(4, CPU)
    wanted = keep_of_tokens(keys[2], 32, 64, 0.1).mask()
    found = keep_of_tokens(keys.to(backend.device)[2], 32, 64, 0.1).mask()
    backend.boundary("bits", outputs=[found])
    assert wanted.numel() == 131072
    assert torch.equal(found.cpu(), wanted)


def test_weights_are_rounded_alike(backend):
    key, box = RoundingKey(3, 9), Box((5, 3), (200, 301))
    values = torch.randn(200, 301, generator=torch.Generator().manual_seed(0))
    wanted = stochastic_round(values, keyed_bits(key, "w", (400, 700), box, CPU))
    there = KeysThere.of_all(key, ["v", "w"], backend.device)
    bits = keyed_bits(there, "w", (400, 700), box, backend.device)
    found = stochastic_round(values.to(backend.device), bits)
    backend.boundary("bits", outputs=[found])
    assert torch.equal(found.cpu(), wanted)
