import math

import pytest
import torch

from kitae.checkpoint.bits import is_finite, same_bits

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("count", [1, 7, 4096])
def test_one_value_that_is_not_finite_is_found_anywhere(dtype, count):
    for place in {0, count // 2, count - 1}:
        for value in (math.nan, math.inf, -math.inf):
            values = torch.linspace(-3, 3, count).to(dtype)
            assert is_finite(values)
            values[place] = value
            assert not is_finite(values)


def test_finite_also_where_the_sum_is_not():
    assert is_finite(torch.full((4,), 3e38))
    assert is_finite(torch.tensor([3e38, -3e38]).bfloat16())
    assert is_finite(torch.zeros(0))
    assert is_finite(torch.tensor([1, 2]))


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int8, torch.bool], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (8,), (5, 7), (4, 2, 8), (0, 3)], ids=str)
def test_the_same_bits(dtype, shape):
    one = torch.arange(math.prod(shape)).view(shape).to(dtype)
    assert same_bits(one, one.clone())
    for place in range(one.numel()):
        other = one.clone()
        other.view(-1)[place] = 0 if other.view(-1)[place] else 1
        assert not same_bits(one, other)


def test_equal_is_not_the_same():
    assert same_bits(torch.tensor([math.nan]), torch.tensor([math.nan]))
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same_bits(torch.ones(2), torch.ones(2, dtype=torch.float64))
    assert not same_bits(torch.ones(2), torch.ones(3))
    assert not same_bits(torch.ones(2, 3), torch.ones(3, 2))


@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_views_into_something_else(first):
    """Wide integers can be had only where they are aligned."""
    base = torch.arange(40, dtype=torch.int16)
    assert same_bits(base[first : first + 8], base[first : first + 8].clone())
    assert same_bits(base.view(8, 5)[:, first], base.view(8, 5)[:, first].clone())
    assert not same_bits(base[first : first + 8], base[first + 1 : first + 9])
