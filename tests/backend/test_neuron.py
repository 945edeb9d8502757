"""The backend of TorchNeuron, with a stand-in for the package (see neuron_stand_in)."""

from __future__ import annotations

import pytest
import torch
from neuron_stand_in import FOUR_CORES, WHOLE, StandIn

from kitae.backend import neuron
from kitae.backend.neuron import NeuronBackend
from kitae.backend.stack import NeuronPackage
from kitae.backend.table import select
from kitae.errors import RecipeError


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return StandIn(monkeypatch)


def test_its_place_in_the_table():
    assert NeuronBackend.name == "neuron"
    assert (NeuronBackend.lazy, NeuronBackend.static, NeuronBackend.exclusive) == (False, True, True)
    assert NeuronBackend.transport(1) == ("neuron", False)


def test_collectives_that_are_registered_on_import(plays: StandIn, monkeypatch: pytest.MonkeyPatch):
    plays(**WHOLE)
    known = torch.distributed.Backend.backend_list
    monkeypatch.setattr(torch.distributed.Backend, "backend_list", list(known))
    with pytest.raises(RecipeError, match=r"2\.14\.3\.0 brings no process group"):
        NeuronBackend.world(8)

    def imported(name: str) -> None:
        assert name == "torch_neuronx"
        torch.distributed.Backend.backend_list.append("neuron")

    monkeypatch.setattr(neuron, "import_module", imported)
    monkeypatch.setattr(neuron, "DEVICE", "neuron")
    assert NeuronBackend.world(8) == "cpu:gloo,neuron:neuron"


def test_without_it_the_reason_is_said():
    assert "is not installed" in (NeuronBackend.unavailable() or "")
    assert NeuronBackend.devices() == 0
    with pytest.raises(RecipeError, match=r"backend 'neuron' cannot be used: TorchNeuron .* not installed"):
        select("neuron")


def test_the_package_of_the_same_name_is_told_apart(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(neuron, "neuron_package", lambda: NeuronPackage("xla", "2.9.0.2.12.22436"))
    assert "2.9.0.2.12.22436 is the one for torch-xla" in (NeuronBackend.unavailable() or "")


def test_a_package_that_does_not_fit_torch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(neuron, "neuron_package", lambda: NeuronPackage("native", "2.14.3.0"))
    assert "has not added torch.neuron" in (NeuronBackend.unavailable() or "")


def test_no_core(plays: StandIn):
    def broken():
        raise RuntimeError("nrt_init failed")

    plays(device_count=broken)
    assert "sees no core" in (NeuronBackend.unavailable() or "")


def test_the_runtime_is_left_alone_until_the_world_is_there(plays: StandIn, monkeypatch: pytest.MonkeyPatch):
    """It asserts that nobody has started it before its first process group, which is to be of all ranks."""
    plays(**WHOLE)
    monkeypatch.setenv("LOCAL_RANK", "6")
    backend = NeuronBackend()
    assert plays.calls == []
    monkeypatch.setattr(neuron.dist, "get_world_size", lambda: 1)
    backend.joined()
    assert plays.calls == []
    monkeypatch.setattr(neuron.dist, "get_world_size", lambda: 64)
    backend.joined()
    assert plays.calls == [("set_device", 6)]


def test_one_process_needs_no_collectives():
    assert NeuronBackend.world(1) == "gloo"


def test_figures_and_waiting(plays: StandIn):
    plays(**WHOLE)
    backend = NeuronBackend()
    backend.synchronize()
    backend.release_memory()
    assert backend.memory_bytes() == 12345
    assert [name for name, *_ in plays.calls][-3:] == ["synchronize", "empty_cache", "max_memory_allocated"]


def test_a_release_that_lacks_something(plays: StandIn):
    """Memory is told as far as it is known; what cannot be done without is named."""
    plays(**FOUR_CORES, memory_allocated=lambda: 7)
    backend = NeuronBackend()
    assert backend.memory_bytes() == 7
    backend.release_memory()
    with pytest.raises(RecipeError, match=r"2\.14\.3\.0 has no torch\.neuron\.synchronize; update it"):
        backend.synchronize()


def test_peak_by_the_data_sheet(plays: StandIn, monkeypatch: pytest.MonkeyPatch):
    plays(**WHOLE)
    monkeypatch.setattr(neuron, "instance_type", lambda: "trn2.48xlarge")
    assert NeuronBackend().peak_flops(torch.bfloat16) == pytest.approx(166.75e12)
