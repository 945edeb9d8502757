"""Shares of an update: exact or refused (`accumulation / world size` must never be 0)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.errors import RecipeError
from kitae.scale.share import Share, Sharing

STRONG = Sharing(
    kind="strong",
    unit="workers",
    processes=1,
    tensor_parallel=1,
    rows=16384,
    own_copies=None,
    micro=16,
    micro_tokens=8192,
    length=128,
)
WEAK = replace(STRONG, kind="weak", rows=512)


def test_accumulation_is_divided_in_strong_scaling():
    nodes = replace(STRONG, unit="nodes", processes=32)
    assert [one.accumulation for one in nodes.of([1, 2, 16, 32])] == [32, 16, 2, 1]
    assert {one.rows for one in nodes.of([1, 2, 16, 32])} == {16384}


def test_accumulation_stays_in_weak_scaling():
    shares = WEAK.of([1, 2, 3])
    assert [one.accumulation for one in shares] == [32, 32, 32]
    assert [one.rows for one in shares] == [512, 1024, 1536]


def test_a_width_whose_accumulation_would_be_rounded_is_refused_with_those_that_fit():
    few = replace(STRONG, rows=8, micro=2)
    with pytest.raises(RecipeError, match=r"--workers 3: 8 rows .* would be 1\.33, .*up to 4, 1, 2, 4 fit"):
        few.of([1, 3, 4])
    with pytest.raises(
        RecipeError, match=r"--workers 8: .* accumulation would be 0\.5, and is never rounded"
    ):
        few.of([1, 8])


def test_a_copy_takes_whole_processes():
    cut = replace(STRONG, tensor_parallel=2)
    assert [one.copies for one in cut.of([2, 4])] == [1, 2]
    with pytest.raises(RecipeError, match=r"--workers 3: copies .* take 2 .* 3 cannot .*; up to 4, 2, 4 fit"):
        cut.of([3, 4])


def test_a_recipe_that_says_its_copies_gives_its_batch_for_those_in_weak_scaling():
    sixteen = replace(WEAK, unit="nodes", rows=1_048_576, processes=32, own_copies=512)
    shares = sixteen.of([1, 16, 32])
    assert [one.rows for one in shares] == [65_536, 1_048_576, 2_097_152]
    assert {one.accumulation for one in shares} == {128}


def test_an_automatic_micro_batch_is_one_that_all_widths_can_have():
    shares = replace(STRONG, rows=24, micro=None).of([1, 2, 4])
    assert [one.micro for one in shares] == [6, 6, 6]
    assert [one.accumulation for one in shares] == [4, 2, 1]
    long = replace(STRONG, rows=24, micro=None, length=4096).of([1, 2, 4])
    assert {one.micro for one in long} == {2}
    assert {one.micro for one in replace(STRONG, micro=None, length=100_000).of([1, 2])} == {1}


@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(1, 4096),
    micro=st.one_of(st.none(), st.integers(1, 64)),
    tensor_parallel=st.sampled_from([1, 2, 4]),
    processes=st.sampled_from([1, 2, 32]),
    widths=st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True),
    kind=st.sampled_from(["strong", "weak"]),
    own=st.one_of(st.none(), st.integers(1, 8)),
)
def test_a_share_is_exact_or_refused(rows, micro, tensor_parallel, processes, widths, kind, own):
    sharing = Sharing(kind, "nodes", processes, tensor_parallel, rows, own, micro, 8192, 128)
    try:
        shares = sharing.of(widths)
    except RecipeError:
        assert not all(sharing.fits(one, widths) for one in widths)
        return
    for one in shares:
        assert isinstance(one, Share)
        assert one.accumulation >= 1
        assert one.accumulation * one.copies * one.micro == one.rows
        assert one.copies * tensor_parallel == one.width * processes
    each = {one.rows // one.copies for one in shares}
    assert len(each) == 1 if kind == "weak" else {one.rows for one in shares} == {rows}
