"""Which boxes meet, and whether they cover a tensor."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.checkpoint.coverage import Coverage, intersect
from kitae.errors import WeightsError
from kitae.parallel.layout import Box

SHAPE = (7, 5)


@st.composite
def boxes(draw):
    start = tuple(draw(st.integers(0, size - 1)) for size in SHAPE)
    return Box(start, tuple(draw(st.integers(0, n - s)) for s, n in zip(start, SHAPE, strict=True)))


@settings(deadline=None, max_examples=200)
@given(given_boxes=st.lists(boxes(), max_size=12))
def test_a_box_is_refused_when_it_meets_any_before(given_boxes):
    coverage, taken = Coverage({"w": SHAPE}), []
    for box in given_boxes:
        if any(intersect(box, other) for other in taken):
            with pytest.raises(WeightsError, match="written twice"):
                coverage.add("w", box, box.shape)
        else:
            coverage.add("w", box, box.shape)
            taken.append(box)


def test_what_is_missing_is_counted():
    coverage = Coverage({"w": SHAPE, "scalar": (), "none": (0, 3)})
    coverage.add("w", Box((0, 0), (7, 4)), (7, 4))
    with pytest.raises(WeightsError, match=r"2 tensors .*w \(7, 5\): 28 of 35 values, scalar \(\): 0 of 1"):
        coverage.check()
    coverage.add("w", Box((0, 4), (7, 1)), (7, 1))
    coverage.add("scalar", Box((), ()), ())
    coverage.check()
    with pytest.raises(WeightsError, match="written twice"):
        coverage.add("scalar", Box((), ()), ())
