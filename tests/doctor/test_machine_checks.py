from collections import namedtuple
from importlib import metadata

import pytest
from packaging.requirements import Requirement

import kitae.doctor.checks as checks
import kitae.doctor.machine as machine
from kitae.doctor.finding import Patient


@pytest.fixture
def patient(tmp_path):
    return Patient(tmp_path / "cache")


@pytest.fixture
def asks(monkeypatch):
    """Makes kitae's package ask for these requirements."""

    def make(*requirements, extras=("ja", "dev")):
        monkeypatch.setattr(metadata, "requires", lambda name: list(requirements))
        monkeypatch.setattr(machine.metadata, "metadata", lambda name: Provides(extras))

    return make


class Provides:
    def __init__(self, extras):
        self.extras = extras

    def get_all(self, name):
        assert name == "Provides-Extra"
        return list(self.extras)


def levels(findings):
    return [(one.level, one.subject) for one in findings]


def test_python(patient, monkeypatch):
    assert levels(machine.python(patient)) == [("ok", "python")]
    monkeypatch.setattr(machine, "OLDEST_PYTHON", (4, 2))
    (found,) = machine.python(patient)
    assert (found.level, found.text.endswith("kitae needs 4.2 or newer")) == ("fail", True)


def test_packages_in_their_ranges(patient, asks):
    asks(
        "torch>=2", "numpy>=99", "no-such-package>=1", 'tomli>=2; python_version < "3"', 'x>1; extra == "ja"'
    )
    found = {one.subject: one for one in machine.packages(patient)}
    assert set(found) == {"torch", "numpy", "no-such-package"}
    assert (found["torch"].level, found["torch"].text) == ("ok", metadata.version("torch"))
    assert found["numpy"].level == "note"
    assert found["numpy"].text.endswith("and kitae is made for numpy>=99")
    assert found["no-such-package"].level == "fail"
    assert found["no-such-package"].text == "is not installed; pip install 'no-such-package>=1'"


def test_packages_when_kitae_itself_is_not_installed(patient, monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    assert levels(machine.packages(patient)) == [("note", "packages")]
    assert list(machine.extras(patient)) == []


def test_extras_that_are_there_or_not(patient, asks):
    asks(
        "torch",
        'numpy; extra == "ja"',
        'no-such-package; extra == "hub"',
        'pytest; extra == "dev"',
        extras=("ja", "hub", "dev"),
    )
    ja, hub = machine.extras(patient)
    assert (ja.level, ja.subject, ja.text) == ("ok", "extra ja", f"numpy {metadata.version('numpy')}")
    assert (hub.level, hub.subject) == ("note", "extra hub")
    assert hub.text == "no-such-package not installed; pip install 'kitae[hub]' where it is needed"


def test_requirements_of_the_project_can_be_read(asks):
    asks("torch>=2.9,<2.16", 'fugashi>=1.3; extra == "ja"')
    found = machine._requirements()
    assert found[""] == [Requirement("torch>=2.9,<2.16")]
    assert [one.name for one in found["ja"]] == ["fugashi"]


def test_backend(patient):
    (found,) = machine.backend(patient)
    assert found.level == "ok"
    assert found.text.startswith(("cpu, ", "cuda, "))
    assert "GB of memory" in found.text


def test_disk_of_a_folder_that_is_not_there_yet(patient, monkeypatch):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda place: usage(6_000_000_000))
    (found,) = machine.disk(patient)
    assert (found.level, found.text) == ("ok", f"{patient.cache}: 6.0 GB free")
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda place: usage(4_900_000_000))
    (found,) = machine.disk(patient)
    assert found.level == "note"
    assert "4.9 GB free; set KITAE_CACHE" in found.text


def test_a_check_that_breaks_leaves_the_others(patient, monkeypatch):
    """On a machine that nobody foresaw."""

    def broken(patient):
        raise RuntimeError("no such register")
        yield

    monkeypatch.setattr(checks, "CHECKS", {"first": broken, "second": machine.python})
    first, second = checks.examine(patient)
    assert (first.level, first.subject) == ("note", "first")
    assert first.text == "could not be looked at: RuntimeError: no such register"
    assert second.subject == "python"
