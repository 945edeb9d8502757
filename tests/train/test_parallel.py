"""The same training whatever the cut: losses, gradient norms and rows against one process."""

import pytest
from parallel_training import ALONE, DEVICES, Topology, results_of, trained

STEPS = 20
FP32 = {"training": {"precision": "fp32"}}
TOPOLOGIES = [
    Topology(tp=2),
    Topology(tp=4),
    Topology(tp=8),
    Topology(tp=2, sequence=True),
    Topology(dp=2),
    Topology(dp=2, zero1=True),
    Topology(dp=4),
    Topology(dp=4, zero1=True),
    Topology(tp=2, dp=2),
    Topology(tp=2, dp=2, zero1=True),
    Topology(tp=4, dp=2, sequence=True, zero1=True),
]


@pytest.fixture(scope="module", params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(scope="module")
def alone(device, tmp_path_factory):
    return trained(ALONE, tmp_path_factory.mktemp("alone"), steps=STEPS, micro=2, device=device, **FP32)


def assert_same(found, alone, tolerance=1e-5):
    assert found.code == 0, found.says
    assert found.losses == pytest.approx(alone.losses, rel=0, abs=tolerance)
    assert found.norms == pytest.approx(alone.norms, rel=0, abs=tolerance)
    assert found.heldout == pytest.approx(alone.heldout, rel=0, abs=tolerance)
    assert found.samples == alone.samples


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
def test_twenty_steps_as_in_one_process(topology, device, alone, tmp_path):
    micro = max(1, 4 // topology.dp)
    found = trained(topology, tmp_path, steps=STEPS, micro=micro, device=device, **FP32)
    assert len(found.losses) == STEPS
    assert_same(found, alone)
    assert (
        results_of(tmp_path)["model"]["parameters"]
        == 61 * 32 + 2 * (32 * 48 + 32 * 32 + 3 * 32 * 64 + 64) + 32
    )


@pytest.mark.parametrize(
    ("topology", "micro"),
    [
        (ALONE, 1),
        (ALONE, 8),
        (Topology(dp=2, zero1=True), 4),
        (Topology(dp=4), 2),
        (Topology(tp=2, sequence=True), 8),
    ],
    ids=str,
)
def test_accumulation_cut_differently(topology, micro, device, alone, tmp_path):
    found = trained(topology, tmp_path, steps=STEPS, micro=micro, device=device, **FP32)
    assert_same(found, alone)
