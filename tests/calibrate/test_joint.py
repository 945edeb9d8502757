"""What two ranks measure together: updates of two copies, and of a model that is cut in two."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from ranks import run_ranks

from kitae.calibrate import ranks, shapes
from kitae.calibrate.clock import together
from kitae.parallel.mesh import Mesh
from kitae.plan.calibration import Speeds

TINY = ((32, 48, 1, 2, 2, 1, 8, 64), (32, 48, 2, 2, 2, 2, 16, 64))


def joined(mesh: Mesh) -> dict[str, list[tuple[float, float, float]]]:
    """By group: calls, bytes, and seconds of an update."""
    found = {}
    with patch.multiple(shapes, COPIES=TINY, CUT=TINY):
        for name, make in shapes.joint("fp32", mesh):
            kind = "copies" if name == "copies" else "tensor"
            found[name] = [
                (counts[f"{kind}.call"], counts[f"{kind}.byte"], together(run, tries=2).best)
                for counts, run in make()
            ]
    return found


def test_two_ranks_update_together_and_count_what_travels():
    for found in run_ranks(2, joined):
        assert set(found) == {"copies", "a cut model"}
        for group in found.values():
            (calls, size, seconds), (more_calls, more_size, _) = group
            assert 0 < calls <= more_calls
            assert 0 < size < more_size
            assert seconds > 0


def test_a_call_waits_for_the_others_as_well():
    speeds = Speeds("fp32", 1, 2, {"copies.call": 1e-4, "copies.byte": 1e-9}, 0.0, 0.0)
    found = ranks._with_waits(speeds, 2e-4).constants
    assert found == pytest.approx({"copies.call": 3e-4, "copies.byte": 1e-9, "tensor.call": 2e-4})
