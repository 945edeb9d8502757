import math
from itertools import combinations

import pytest
import torch
from cut_updates import TABLE, assembled
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.parallel.assembly import pieces_of
from kitae.parallel.layout import Box, ParameterLayout, Piece
from kitae.parallel.shares import share_layouts
from kitae.train.rounding import RoundingKey, keyed_bits, round_into, stochastic_round

CPU = torch.device("cpu")
KEY = RoundingKey(seed=7, step=1)


def bits(shape, key=KEY, name="tensor", box=None):
    """As numbers from 0 to 65535."""
    made = keyed_bits(key, name, shape, box or Box.whole(shape), CPU)
    assert made.dtype == torch.int16
    return made.to(torch.int32) & 0xFFFF


def whole(name, shape):
    return ParameterLayout(name, (Piece(name, shape, shape, Box.whole(shape), shape),))


def pattern(number):
    return torch.tensor([number], dtype=torch.int64).to(torch.int32).view(torch.float32)


def rounded(value, random):
    return stochastic_round(value, torch.tensor([random], dtype=torch.int32)).float()


@settings(deadline=None, max_examples=200)
@given(
    st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**127), max_value=2.0**127),
    st.integers(0, 0xFFFF),
)
def test_rounds_to_a_neighbour_up_for_as_many_bits_as_its_place_says(value, random):
    value = torch.tensor([value], dtype=torch.float32)
    below = (value.view(torch.int32) & -0x10000).view(torch.float32)
    above = ((value.view(torch.int32) & -0x10000) + 0x10000).view(torch.float32)
    place = int(value.view(torch.int32)) & 0xFFFF  # of 65536 between both
    wanted = above if random >= 0x10000 - place else below
    assert torch.equal(rounded(value, random), wanted)
    assert torch.equal(rounded(-value, random), -wanted)


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, 2.0**-133, 3.3895e38])
def test_what_bf16_represents_stays(value):
    exact = torch.tensor([value]).bfloat16()
    for random in (0, 1, 0x7FFF, 0xFFFF):
        found = stochastic_round(exact.float(), torch.tensor([random]))
        assert torch.equal(found.view(torch.int16), exact.view(torch.int16))


@pytest.mark.parametrize("number", [0x7FC00000, 0x7FFFFFFF, -1, 0x7F800001, 0x7F80FFFF, -0x7FFFFF])
def test_nan_stays_nan(number):
    for random in (0, 1, 0xFFFF):
        assert rounded(pattern(number), random).isnan().all()


def test_bits_of_other_integer_types_are_the_same():
    values = torch.randn(64)
    random = torch.randint(-(1 << 15), 1 << 15, (64,))
    kinds = [stochastic_round(values, random.to(dtype)) for dtype in (torch.int16, torch.int32, torch.int64)]
    assert torch.equal(kinds[0], kinds[1])
    assert torch.equal(kinds[0], kinds[2])


def test_the_caller_keeps_its_bits():
    random = torch.full((3,), -1, dtype=torch.int32)
    stochastic_round(torch.ones(3), random)
    assert random.tolist() == [-1, -1, -1]


def test_small_updates_are_kept_in_the_mean():
    """T46: 4,096 weights at 1.0, 100 x -6e-4: nearest stays 1.0, fp32 0.94, by chance 0.94 +- 0.002."""

    def run(seed):
        weights = torch.ones(4096, dtype=torch.bfloat16)
        for step in range(1, 101):
            round_into(weights, weights.float() - 6e-4, whole("w", (4096,)), RoundingKey(seed, step))
        return weights

    nearest, exact = torch.ones(4096, dtype=torch.bfloat16), torch.ones(4096)
    for _ in range(100):
        nearest, exact = (nearest.float() - 6e-4).bfloat16(), exact - 6e-4
    assert nearest.unique().tolist() == [1.0]
    assert exact.unique().item() == pytest.approx(0.94, abs=1e-5)
    first, again, other = run(1), run(1), run(2)
    assert first.double().mean().item() == pytest.approx(0.94, abs=0.002)
    assert other.double().mean().item() == pytest.approx(0.94, abs=0.002)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def chi_square(counts):
    """In standard deviations from what evenly spread counts give."""
    expected, free = counts.sum() / counts.numel(), counts.numel() - 1
    return float(((counts - expected) ** 2 / expected).sum() - free) / math.sqrt(2 * free)


@pytest.mark.parametrize("shape", [(1 << 20,), (1 << 19, 2), (1024, 1024), (16, 128, 512)])
def test_bits_are_spread_evenly(shape):
    """All 16 together, in each of 16 parts of the tensor, and each bit on its own."""
    drawn = bits(shape).flatten()
    assert abs(chi_square(torch.bincount(drawn, minlength=1 << 16).double())) < 5
    for part in drawn.view(16, -1):
        assert abs(chi_square(torch.bincount(part >> 8, minlength=256).double())) < 5
        assert abs(chi_square(torch.bincount(part & 255, minlength=256).double())) < 5
    ones = ((drawn.unsqueeze(-1) >> torch.arange(16)) & 1).double().mean(0)
    assert (ones - 0.5).abs().max() < 5 * 0.5 / math.sqrt(drawn.numel())


def correlation(one, other):
    """Largest between any bit of one and any of the other, in standard deviations."""
    parts = [
        ((each.flatten().unsqueeze(-1) >> torch.arange(16)) & 1).double() * 2 - 1 for each in (one, other)
    ]
    return float((parts[0].T @ parts[1]).abs().max()) / math.sqrt(one.numel())


def test_bits_of_neighbours_steps_seeds_and_names_are_independent():
    """Largest of 256 pairs of bits: below 5.5 standard deviations for each of the pairs."""
    shape = (512, 513)
    drawn = bits(shape)
    others = {
        "next row": (drawn[:-1], drawn[1:]),
        "next column": (drawn[:, :-1], drawn[:, 1:]),
        "next pair": (drawn[:, :-2], drawn[:, 2:]),
        "far row": (drawn[:256], drawn[256:]),
        "next step": (drawn, bits(shape, RoundingKey(7, 2))),
        "next seed": (drawn, bits(shape, RoundingKey(8, 1))),
        "other name": (drawn, bits(shape, name="tensor2")),
        "seed for step": (bits(shape, RoundingKey(1, 2)), bits(shape, RoundingKey(2, 1))),
    }
    found = {what: correlation(*pair) for what, pair in others.items()}
    assert max(found.values()) < 5.5, found


def test_differences_of_rows_do_not_repeat():
    """Rows and columns are keyed apart: no row is another one changed everywhere in the same way."""
    drawn = bits((64, 4096))
    for one, other in combinations(range(8), 2):
        assert (drawn[one] ^ drawn[other]).unique().numel() > 3500


@pytest.mark.parametrize("shape", [(64, 7), (9, 4, 10), (33,)])
def test_a_box_has_the_bits_of_its_place(shape):
    everything = bits(shape)
    starts = [(0,) * len(shape), tuple(size // 2 for size in shape), tuple(size - 1 for size in shape)]
    for start in starts:
        box = Box(start, tuple(size - first for size, first in zip(shape, start, strict=True)))
        assert torch.equal(bits(shape, box=box), everything[box.slices()])


def test_the_cuts_of_tensor_parallelism_and_shares_round_as_the_whole():
    """tp2 x dp2, assembled, equals one rank to the bit; so do rounding in other blocks and tp4."""

    def boxes(tp_size, dp_size):
        for tp_rank in range(tp_size):
            for dp_rank in range(dp_size):
                for layout in share_layouts(TABLE(tp_size, tp_rank), dp_size, dp_rank):
                    target = torch.zeros(layout.shape, dtype=torch.bfloat16)
                    round_into(target, torch.full(layout.shape, 1.00390625 * 1.001), layout, KEY)
                    yield list(pieces_of(layout, target.float()))

    alone = assembled(boxes(1, 1))
    for cut in ((2, 2), (4, 1), (1, 3)):
        found = assembled(boxes(*cut))
        assert all(torch.equal(found[name], one) for name, one in alone.items())
    assert all(len(one.unique()) == 2 for one in alone.values())


def test_blocks_do_not_matter(monkeypatch):
    values, made = torch.randn(50, 30), []
    for size in (1, 64, 1 << 17):
        monkeypatch.setattr("kitae.train.rounding._CPU_BLOCK", size)
        made.append(torch.zeros(50, 30, dtype=torch.bfloat16))
        round_into(made[-1], values, whole("w", (50, 30)), KEY)
    assert torch.equal(made[0], made[1])
    assert torch.equal(made[0], made[2])
    drawn = keyed_bits(KEY, "w", (50, 30), Box.whole((50, 30)), CPU)
    assert torch.equal(made[0], stochastic_round(values, drawn))
