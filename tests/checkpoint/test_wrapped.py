from __future__ import annotations

import math

import pytest
import torch
from native_case import DictSource

from kitae.checkpoint.wrapped import Cast, Counting
from kitae.errors import ProofError, WeightsError
from kitae.parallel.layout import Box

W = torch.arange(6.0).view(2, 3)
TOP, BOTTOM = Box((0, 0), (1, 3)), Box((1, 0), (1, 3))


def test_each_value_once():
    source = Counting(DictSource({"w": W, "v": W}))
    assert torch.equal(source.read("w", TOP), W[:1])
    source.read("w", BOTTOM)
    with pytest.raises(ProofError, match=r"not all of the source was used: 1 tensors .*v"):
        source.check()
    source.read("v")
    source.check()


@pytest.mark.parametrize("second", [None, TOP])
def test_a_value_twice(second):
    source = Counting(DictSource({"w": W}))
    source.read("w", TOP)
    with pytest.raises(ProofError, match="used twice"):
        source.read("w", second)


def test_what_was_used_before_counts_and_must_not_be_read():
    source = Counting(DictSource({"w": W, "v": W}), used={"w"})
    with pytest.raises(ProofError, match="used twice"):
        source.read("w", BOTTOM)
    source.read("v")
    source.check()


def test_what_is_not_finite_is_named_when_asked():
    source = DictSource({"w": torch.tensor([1.0, math.inf])})
    Counting(source).read("w")
    with pytest.raises(WeightsError, match="tensor w holds values that are not finite"):
        Counting(source, finite=True).read("w")


def test_progress(monkeypatch):
    times = iter([0.0, 4.0, 11.0])
    monkeypatch.setattr("kitae.checkpoint.wrapped.time.monotonic", lambda: next(times))
    said = []
    source = Counting(
        DictSource({"w": torch.zeros(1000, 1000), "v": torch.zeros(1000, 2000)}), report=said.append
    )
    source.read("w")
    source.read("v")
    assert said == ["0.0 of 0.0 GB, 0.00 GB/s"]


def test_progress_counts_what_was_used_before(monkeypatch):
    """But the speed is of what is read now."""
    times = iter([0.0, 20.0])
    monkeypatch.setattr("kitae.checkpoint.wrapped.time.monotonic", lambda: next(times))
    said = []
    tensors = {name: torch.zeros(250_000_000, dtype=torch.int8) for name in ("w", "v")}
    Counting(DictSource(tensors), used={"w"}, report=said.append).read("v")
    assert said == ["0.5 of 0.5 GB, 0.01 GB/s"]


def test_cast():
    source = Cast(DictSource({"w": W}), torch.bfloat16)
    assert source.tensors()["w"].dtype == torch.bfloat16
    assert torch.equal(source.read("w", TOP), W[:1].bfloat16())
    assert Cast(DictSource({"w": W}), None).read("w").dtype == torch.float32


def test_a_cast_that_overflows_and_one_that_was_infinite_before():
    with pytest.raises(WeightsError, match=r"tensor w has values up to 7e\+04, which float16 cannot hold"):
        Cast(DictSource({"w": torch.tensor([-7e4, 1.0])}), torch.float16).read("w")
    assert Cast(DictSource({"w": torch.tensor([math.inf])}), torch.float16).read("w").isinf().all()
