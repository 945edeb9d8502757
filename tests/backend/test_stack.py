"""Two products of one name, told apart by what they offer: made-up packages with the documented metadata."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from kitae.backend import stack
from kitae.backend.stack import instance_type, neuron_package


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, version: str, requires: tuple[str, ...] = (), **files: str
) -> None:
    """A package torch-neuronx in a folder where packages are looked for."""
    info = folder / f"torch_neuronx-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", "Name: torch-neuronx", f"Version: {version}"]
    (info / "METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {one}" for one in requires)]) + "\n")
    for name, text in files.items():
        (info / name).write_text(text)
    monkeypatch.syspath_prepend(str(folder))


def test_none(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(stack.metadata, "distribution", missing)
    assert neuron_package().kind == "absent"


def test_torch_neuron_extends_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    points = {"entry_points.txt": "[torch.backends]\ntorch_neuronx = torch_neuronx:_autoload\n"}
    install(tmp_path, monkeypatch, "2.14.3.0", ("torch==2.14.*",), **points)
    found = neuron_package()
    assert (found.kind, found.version) == ("native", "2.14.3.0")
    assert len(found.signs) == 3


def test_the_one_for_torch_xla_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    requires = ("torch (==2.9.*)", "torch-xla==2.9.*", "libneuronxla (==2.2.15515.0)")
    listing = {"RECORD": "torch_neuronx/xla_impl/trace.py,,\ntorch_neuronx/__init__.py,,\n"}
    install(tmp_path, monkeypatch, "2.9.0.2.12.22436+a1b2c3", requires, **listing)
    found = neuron_package()
    assert found.kind == "xla"
    assert found.signs == ("needs torch-xla", "holds torch_neuronx/xla*")


def test_the_version_is_one_sign_among_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A stub of the package index has version 1.0.x, and says nothing of itself."""
    install(tmp_path, monkeypatch, "1.0.2", ("torch-xla",))
    assert neuron_package().kind == "unclear"


def test_a_long_version_alone_is_not_torch_neuron(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    install(tmp_path, monkeypatch, "2.9.0.2.12.22436")
    assert neuron_package() == stack.NeuronPackage("unclear", "2.9.0.2.12.22436")


def test_the_type_is_read_from_the_firmware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    product = tmp_path / "product_name"
    product.write_text("trn1.32xlarge\n")
    monkeypatch.setattr(stack, "_PRODUCT", product)
    assert instance_type() == "trn1.32xlarge"
    product.unlink()
    assert instance_type() == ""
