from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_case import DictSource

from kitae.checkpoint.compare import compare, summary
from kitae.checkpoint.coverage import Coverage
from kitae.checkpoint.pipe import TensorInfo, blocks

A = torch.arange(12.0).view(3, 4)


def one(first, second):
    (found,) = compare(DictSource({"w": first}), DictSource({"w": second}))
    return found


def test_equal_bits():
    assert one(A, A.clone()).verdict == "equal"
    nan = A.clone()
    nan[0, 0] = math.nan
    assert one(nan, nan.clone()).verdict == "equal"


def test_the_largest_difference_and_how_many():
    other = A.clone()
    other[0, 1] += 0.5
    other[2, 3] -= 2.0
    found = one(A, other)
    assert (found.verdict, found.difference, found.different) == ("values", 2.0, 2)


def test_a_nan_is_the_largest_difference():
    other = A.clone()
    other[0, 1] = math.nan
    other[1, 1] = 99.0
    assert math.isnan(one(A, other).difference)
    assert one(A, other).as_dict()["difference"] == "nan"


def test_zero_and_minus_zero_have_other_bits():
    found = one(torch.tensor([0.0, 1.0]), torch.tensor([-0.0, 1.0]))
    assert (found.verdict, found.difference, found.different) == ("values", 0.0, 1)


def test_dtypes():
    assert one(A, A.bfloat16()).verdict == "dtype"
    found = one(A / 3, (A / 3).bfloat16())
    assert found.verdict == "values"
    assert found.difference == (A / 3 - (A / 3).bfloat16().float()).abs().max().item()


def test_shapes_and_names():
    left = DictSource({"both": A, "shape": A, "mine": A})
    right = DictSource({"both": A, "shape": A.T.contiguous(), "yours": A})
    found = {name.name: name.verdict for name in compare(left, right)}
    assert found == {"both": "equal", "shape": "shape", "mine": "missing", "yours": "extra"}
    assert {verdict: len(group) for verdict, group in summary(compare(left, right)).items()} == {
        "equal": 1,
        "shape": 1,
        "missing": 1,
        "extra": 1,
    }


def test_a_head_that_only_one_has_is_compared_with_the_embedding():
    tied = {"model.embed_tokens.weight": A}
    assert [x.verdict for x in compare(DictSource({**tied, "lm_head.weight": A}), DictSource(tied))] == [
        "equal"
    ] * 2
    other = {**tied, "lm_head.weight": A + 1}
    for first, second in ((tied, other), (other, tied)):
        found = {x.name: x.verdict for x in compare(DictSource(first), DictSource(second))}
        assert found == {"model.embed_tokens.weight": "equal", "lm_head.weight": "values"}


def test_scalars_and_empty_tensors():
    assert one(torch.tensor(1.0), torch.tensor(1.0)).verdict == "equal"
    assert one(torch.tensor(1.0), torch.tensor(3.0)).difference == 2.0
    assert one(torch.zeros(0, 4), torch.zeros(0, 4)).verdict == "equal"


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 9), max_size=3).map(tuple), st.integers(1, 200))
def test_blocks_cover_a_tensor_once_and_are_small(shape, most):
    info = TensorInfo(shape, torch.float32)
    coverage = Coverage({"w": shape})
    for box in blocks(info, most):
        coverage.add("w", box, box.shape)
        assert math.prod(box.shape) * 4 <= max(most, info.nbytes // (shape[0] if shape else 1))
    coverage.check()
