"""The wheel is this kitae, and pip takes it."""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement

import kitae
from kitae.errors import ClusterError
from kitae.launch.ssh import pins as pins_module
from kitae.launch.ssh.pins import extras_here, pins
from kitae.launch.ssh.wheel import make_wheel, requirements


@pytest.fixture
def checkout(tmp_path):
    """A small package that calls itself kitae."""
    package = tmp_path / "checkout/src/kitae"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("answer = 42\n")
    (package / "data/table.toml").write_text("a = 1\n")
    (package / "__pycache__").mkdir()
    (package / "__pycache__/x.pyc").write_bytes(b"x")
    (tmp_path / "checkout/pyproject.toml").write_text(
        '[project]\nname = "kitae"\nrequires-python = ">=3.10"\n'
        'dependencies = ["numpy>=1.26", "tomli>=2; python_version < \'3.11\'"]\n'
        '[project.optional-dependencies]\nhub = ["datasets>=4", "tomli>=1; python_version > \'3\'"]\n'
    )
    return package


def test_equal_files_give_equal_wheels_and_others_another_name(checkout, tmp_path):
    first = make_wheel(tmp_path / "a", checkout)
    assert make_wheel(tmp_path / "b", checkout).read_bytes() == first.read_bytes()
    assert first.name.startswith(f"kitae-{kitae.__version__}+")
    (checkout / "__init__.py").write_text("answer = 43\n")
    assert make_wheel(tmp_path / "a", checkout).name != first.name


def test_pip_installs_it(checkout, tmp_path):
    path = make_wheel(tmp_path, checkout)
    site = tmp_path / "site"
    options = ["--no-index", "--no-deps", "--quiet", "--disable-pip-version-check", "--target", site]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, path], check=True)
    code = "import kitae, importlib.metadata as m; print(kitae.answer, m.version('kitae'))"
    found = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(site)}, capture_output=True, text=True
    )
    assert found.stdout.split() == ["42", path.name.split("-")[1]]
    assert (site / "kitae/data/table.toml").read_text() == "a = 1\n"
    assert not list(site.rglob("x.pyc"))


def test_the_record_has_the_hash_of_each_file(checkout, tmp_path):
    import base64

    with zipfile.ZipFile(make_wheel(tmp_path, checkout)) as archive:
        (record,) = [name for name in archive.namelist() if name.endswith("RECORD")]
        rows = [line.rsplit(",", 2) for line in archive.read(record).decode().splitlines()]
        assert sorted(row[0] for row in rows) == sorted(archive.namelist())
        for name, digest, size in rows[:-1]:
            content = archive.read(name)
            wanted = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={wanted}", len(content))


def test_what_a_checkout_needs_is_what_packaging_reads(checkout, tmp_path):
    needs = requirements(checkout)
    with zipfile.ZipFile(make_wheel(tmp_path, checkout)) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith("METADATA")]
        found = Metadata.from_email(archive.read(name))
    assert found.requires_dist is not None
    assert len(found.requires_dist) == len([one for one in needs if one.startswith("Requires-Dist")])
    with_hub = {
        r.name for r in found.requires_dist if r.marker is None or r.marker.evaluate({"extra": "hub"})
    }
    assert {"numpy", "datasets", "tomli"} == with_hub


def test_this_kitae_says_what_its_project_says():
    needs = requirements(Path(kitae.__file__).parent)
    names = {Requirement(one.partition(": ")[2]).name for one in needs if one.startswith("Requires-Dist")}
    assert {"torch", "transformers", "pydantic", "datasets"} <= names


def test_files_of_which_nothing_is_known(checkout, tmp_path, monkeypatch):
    import importlib.metadata

    (checkout.parents[1] / "pyproject.toml").unlink()

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "metadata", missing)
    with pytest.raises(ClusterError, match="it is neither a checkout nor installed; install it with pip"):
        make_wheel(tmp_path, checkout)
    shutil.rmtree(checkout)


@pytest.fixture
def installed(monkeypatch):
    """Packages that are said to be installed, and what they need."""
    found = {
        "torch": ("2.13.0+cpu", ["sympy>=1", "pytest; extra == 'test'"]),
        "sympy": ("1.14", []),
        "h5py": ("3", []),
    }
    monkeypatch.setattr(pins_module, "_installed", lambda name: found.get(name, (None,))[0])
    monkeypatch.setattr(pins_module, "_needed_by", lambda name: _needs(found[name][1]))


def _needs(texts):
    return [
        one.name
        for one in map(Requirement, texts)
        if one.marker is None or one.marker.evaluate({"extra": ""})
    ]


NEEDS = [
    "Requires-Python: >=3.10",
    "Requires-Dist: torch>=2.9",
    'Requires-Dist: h5py>=3 ; extra == "hdf5"',
    'Requires-Dist: datasets>=4 ; extra == "hub"',
]


def test_pins_are_what_runs_here(installed):
    assert extras_here(NEEDS) == ["hdf5"]
    assert pins(NEEDS, ["hdf5"]) == "h5py==3\nsympy==1.14\ntorch==2.13.0\n"
    assert pins(NEEDS, []) == "sympy==1.14\ntorch==2.13.0\n"


def test_what_is_not_installed_here_cannot_be_pinned(installed):
    with pytest.raises(ClusterError, match="kitae needs datasets, which is not installed here"):
        pins(NEEDS, ["hub"])
