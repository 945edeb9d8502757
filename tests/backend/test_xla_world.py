"""Whether processes are one world for torch-xla: what each sees, and what is said when it is not."""

import pytest

from kitae.backend.xla_world import Sight, check_one_world
from kitae.errors import TrainingError


def refusal(*sights):
    with pytest.raises(TrainingError) as caught:
        check_one_world(sights)
    return str(caught.value)


@pytest.mark.parametrize("size", [1, 2, 32])
def test_one_world(size):
    check_one_world([Sight(size, rank, 1) for rank in range(size)])


def test_worlds_of_one():
    """What torchrun gives on a CPU, and a Trainium whose runtime was not told of the others."""
    told = refusal(Sight(1, 0, 1), Sight(1, 0, 1))
    assert "2 were started, and each sees a world of 1, so that sums would be wrong" in told
    assert "Nothing was trained" in told


def test_worlds_of_different_sizes():
    assert "each sees a world of 1 or 4" in refusal(Sight(4, 0, 1), Sight(1, 0, 1))


def test_all_take_themselves_for_the_first():
    """CPU_NUM_DEVICES=2 in two processes: sizes are right, and every rank is device 0."""
    told = refusal(Sight(2, 0, 2), Sight(2, 0, 2))
    assert "the ranks 0 to 1 take themselves for devices 0, 0" in told


def test_ranks_in_another_order():
    assert "devices 1, 0" in refusal(Sight(2, 1, 1), Sight(2, 0, 1))


def test_several_devices_in_a_process():
    assert "a process has 2 devices" in refusal(Sight(2, 0, 2), Sight(2, 1, 2))


@pytest.mark.parametrize(
    ("device", "way_out"), [("CPU", "target.backend: cpu"), ("NEURON", "NEURON_PJRT_WORLD_SIZE")]
)
def test_the_way_out_is_that_of_the_device(device, way_out, monkeypatch):
    monkeypatch.setenv("PJRT_DEVICE", device)
    assert way_out in refusal(Sight(1, 0, 1), Sight(1, 0, 1))
