"""What the backend of torch-xla says where it cannot be used; nothing here imports torch-xla."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from kitae.backend import xla
from kitae.backend.table import BACKENDS, chosen, default_name, select, select_aside
from kitae.backend.xla import XlaBackend
from kitae.errors import RecipeError


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """As if torch-xla for this torch were here, and no Neuron device."""
    monkeypatch.setattr(xla, "find_spec", lambda name: None if name == "libneuronxla" else object())
    monkeypatch.setattr(xla, "version", lambda name: torch.__version__.partition("+")[0])
    monkeypatch.setattr(xla, "DEVICES", tmp_path)
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    return tmp_path


def test_without_torch_xla(monkeypatch):
    monkeypatch.setattr(xla, "find_spec", lambda name: None)
    with pytest.raises(
        RecipeError, match=r"'xla' cannot be used: torch-xla is not installed; it needs torch 2.9.1"
    ):
        select("xla")
    assert XlaBackend.devices() == 0


def test_with_another_torch(installed, monkeypatch):
    monkeypatch.setattr(xla, "version", lambda name: "1.13.0")
    assert XlaBackend.unavailable().startswith(f"torch-xla 1.13.0 does not fit torch {torch.__version__}")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "PJRT_DEVICE is not set: set it to NEURON on a Trainium, or to CPU"),
        ("TPU", "PJRT_DEVICE is TPU: set it to NEURON"),
        ("NEURON", "PJRT_DEVICE is NEURON, and there is no Neuron device"),
    ],
)
def test_without_a_device(installed, monkeypatch, value, reason):
    monkeypatch.setenv("PJRT_DEVICE", value)
    assert XlaBackend.unavailable().startswith(reason)


def test_a_trainium_is_found_and_taken_without_being_named(installed, monkeypatch):
    """Not the CPU that plays one: that has to be asked for."""
    assert XlaBackend.unavailable() is None
    assert not XlaBackend.unasked()
    assert default_name() != "xla"
    for name in ("neuron0", "neuron1", "neuron_core", "neuronx"):
        (installed / name).touch()
    monkeypatch.delenv("PJRT_DEVICE")
    assert XlaBackend.unavailable() == "PJRT_DEVICE is NEURON, and libneuronxla is not installed"
    monkeypatch.setattr(xla, "find_spec", lambda name: object())
    assert XlaBackend.unavailable() is None
    assert XlaBackend.unasked()
    assert XlaBackend.devices() == 4
    monkeypatch.setenv("NEURON_RT_NUM_CORES", "2")
    assert XlaBackend.devices() == 2


def test_a_cpu_plays_as_many_devices_as_it_is_told(installed, monkeypatch):
    assert XlaBackend.devices() == 1
    monkeypatch.setenv("CPU_NUM_DEVICES", "4")
    assert XlaBackend.devices() == 4


def test_a_library_that_cannot_be_imported_is_one_line(installed, monkeypatch):
    def broken(name):
        raise ImportError("undefined symbol: _ZN5torch\nand more")

    xla._library.cache_clear()
    monkeypatch.setattr(xla, "import_module", broken)
    with pytest.raises(RecipeError, match=r"importing torch-xla fails: undefined symbol: _ZN5torch$"):
        select("xla")


def test_work_aside_is_done_on_the_cpu(installed):
    assert select_aside("xla").name == "cpu"
    assert select_aside("cpu").name == "cpu"


def test_a_class_is_chosen_without_taking_its_device(monkeypatch):
    monkeypatch.setattr(BACKENDS["cpu"], "__init__", lambda self: pytest.fail("made"))
    assert chosen("cpu") is BACKENDS["cpu"]
    with pytest.raises(RecipeError, match="none of that name"):
        chosen("tpu")


def test_nothing_of_torch_xla_is_imported_by_the_table():
    code = "import sys; from kitae.backend import table; table.available(); print('torch_xla' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("device", "variable"), [("CPU", "CPU_NUM_DEVICES"), ("NEURON", "NEURON_RT_NUM_CORES")]
)
def test_a_number_of_devices_that_is_none_is_told(installed, monkeypatch, device, variable):
    monkeypatch.setattr(xla, "find_spec", lambda name: object())
    (installed / "neuron0").touch()
    monkeypatch.setenv("PJRT_DEVICE", device)
    monkeypatch.setenv(variable, "0-1")
    with pytest.raises(RecipeError, match=f"{variable}=0-1 is no number of devices: set it to one, or unset"):
        XlaBackend.devices()


def test_notes_of_programs_with_broken_bytes_are_read(installed, monkeypatch):
    monkeypatch.setenv("KITAE_CACHE", str(installed / "cache"))
    library = SimpleNamespace(runtime=SimpleNamespace(initialize_cache=lambda folder, readonly: None))
    artefacts = xla._Artefacts(library)
    (folder,) = (installed / "cache/compiled").iterdir()
    (folder / xla.NOTES).write_bytes(b"\xff\xfe junk\naa11 123\n\xff b c\n")
    (folder / "123").touch()
    assert artefacts.of("aa11") == "123"
    (folder / "456").touch()
    assert artefacts.of("bb22") == "456"
    assert xla._Artefacts(library).of("bb22") == "456"
