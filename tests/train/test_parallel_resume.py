"""Stopped, killed and resumed trainings on several ranks, on the same topology and on others."""

import signal
from functools import partial

import pytest
import torch
from parallel_training import ALONE, DEVICES, Topology, stored, trained
from ranks import RanksFailedError
from sabotage import killed, signal_at

STEPS = 6
EVERY = {"checkpoint": {"every": "2 steps"}}
MIXED = Topology(tp=2, dp=2, sequence=True, zero1=True)
BATCH = {"batch": 12, "micro": 2}


def stop_after(steps, rank=0):
    """SIGTERM to one rank at the end of the last of so many updates."""
    return partial(signal_at, rank=rank, place="reduce", count=steps, number=signal.SIGTERM)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return trained(ALONE, tmp_path_factory.mktemp("alone"), steps=STEPS, **BATCH)


@pytest.mark.parametrize("topology", [MIXED, Topology(dp=3), Topology(tp=4)], ids=str)
def test_the_same_topology_twice_is_the_same_to_the_bit(topology, tmp_path):
    first, second = (trained(topology, tmp_path / name, steps=STEPS, **BATCH) for name in "ab")
    assert first == second
    one, other = (stored(tmp_path / name, STEPS) for name in "ab")
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("topology", [MIXED, Topology(dp=2)], ids=str)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-sr"])
def test_killed_and_resumed_is_the_same_to_the_bit(topology, precision, device, tmp_path):
    options = {"steps": STEPS, **BATCH, **EVERY, "training": {"precision": precision}, "device": device}
    straight = trained(topology, tmp_path / "straight", **options)
    with pytest.raises(RanksFailedError, match="died"):
        trained(topology, tmp_path / "killed", **options, sabotage=partial(killed, place="train", count=4))
    resumed = trained(topology, tmp_path / "killed", **options)
    assert (resumed.losses, resumed.norms, resumed.heldout) == (
        straight.losses,
        straight.norms,
        straight.heldout,
    )
    one, other = (stored(tmp_path / name, STEPS) for name in ("straight", "killed"))
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_any_topology_goes_on_from_any_other(alone, tmp_path):
    """T39, T40: one step on each; losses as in one process, no row twice, none left out, fp32 moments."""
    ways = [
        Topology(tp=2, dp=2, zero1=True),
        Topology(tp=4),
        ALONE,
        Topology(dp=3, zero1=True),
        Topology(tp=2, sequence=True),
        Topology(tp=2, dp=2),
    ]
    samples = []
    for number, topology in enumerate(ways):
        last = number == len(ways) - 1
        found = trained(
            topology,
            tmp_path,
            steps=STEPS,
            **BATCH,
            sabotage=None if last else stop_after(1, topology.ranks - 1),
        )
        assert found.code == (0 if last else 75), found.says
        samples += found.samples[:1]
        assert found.losses == pytest.approx(alone.losses[: number + 1], rel=0, abs=1e-5)
        assert found.norms == pytest.approx(alone.norms[: number + 1], rel=0, abs=1e-5)
        for (kind, name), tensor in stored(tmp_path, number + 1).items():
            assert tensor.dtype == torch.float32, (kind, name)
    assert samples == alone.samples


@pytest.mark.parametrize("topology", [Topology(tp=2), Topology(dp=2, zero1=True)], ids=str)
@pytest.mark.parametrize("place", ["warm-up", "train", "reduce", "evaluation", "save"])
def test_a_signal_to_one_rank_stops_all_at_one_step(place, topology, alone, tmp_path):
    """T43: SIGTERM to one rank in warm-up, training, evaluation or a save: the same step, saved, code 75."""
    rank = 0 if place == "save" else 1  # the one that publishes
    count = 2 if place in ("train", "reduce") else 1
    blow = partial(signal_at, rank=rank, place=place, count=count, number=signal.SIGTERM)
    stopped = trained(topology, tmp_path, steps=STEPS, **BATCH, **EVERY, sabotage=blow)
    assert stopped.code == 75
    assert "stopped by SIGTERM after step" in stopped.says
    steps = {"warm-up": 0, "train": 1, "reduce": 2, "evaluation": 0, "save": 2}[place]
    assert f"after step {steps} of {STEPS}" in stopped.says
    if steps:
        assert stored(tmp_path, steps)
    resumed = trained(topology, tmp_path, steps=STEPS, **BATCH, **EVERY)
    assert resumed.losses == pytest.approx(alone.losses, rel=0, abs=1e-5)


@pytest.mark.parametrize("topology", [ALONE, MIXED], ids=str)
def test_saving_beside_the_training_changes_nothing(topology, tmp_path):
    given = {"steps": STEPS, **BATCH}
    waited = trained(topology, tmp_path / "waited", **given, checkpoint={"every": "2 steps"})
    beside = trained(
        topology, tmp_path / "beside", **given, checkpoint={"every": "2 steps", "asynchronous": True}
    )
    assert waited == beside
    for step in (2, 4, 6):
        one, other = (stored(tmp_path / name, step) for name in ("waited", "beside"))
        assert all(torch.equal(one[key], other[key]) for key in one)


def test_a_signal_waits_for_the_save_beside_the_training(tmp_path):
    every = {"checkpoint": {"every": "2 steps", "asynchronous": True}}
    stopped = trained(MIXED, tmp_path, steps=STEPS, **BATCH, **every, sabotage=stop_after(3, rank=3))
    assert (stopped.code, "it is saved in" in stopped.says) == (75, True)
    assert stored(tmp_path, 3)
