"""What neuron-ls, the driver's files and /dev tell; samples are written from the documented schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kitae.doctor.neuron_devices import (
    Device,
    Holder,
    architecture,
    device_files,
    driver_version,
    parse_neuron_ls,
    sysfs_devices,
)


def entry(number: int, **changes: object) -> dict[str, object]:
    """A device of a trn1.32xlarge as neuron-ls of SDK 2.28 lists it."""
    return {
        "neuron_device": number,
        "bdf": "00:1e.0",
        "cpu_affinity": "0-31",
        "numa_node": "0",
        "connected_to": [12, 3, 4, 1],
        "nc_count": 2,
        "memory_size": 34359738368,
        "neuroncore_ids": [2 * number, 2 * number + 1],
        "neuron_processes": [],
        **changes,
    }


TRAINS = {"pid": 268911, "command": "python train.py", "neuron_runtime_version": "2.30.51"}
LOOKS = {"pid": 269192, "command": "neuron-monitor", "neuron_runtime_version": "NA"}


def test_a_device_with_holders():
    (found,) = parse_neuron_ls(json.dumps([entry(3, neuron_processes=[TRAINS, LOOKS])]))
    holders = (Holder(268911, "python train.py", "2.30.51"), Holder(269192, "neuron-monitor", ""))
    assert found == Device(3, 2, None, 34359738368, (6, 7), holders, "0")
    assert found.ranks == 2


def test_logical_cores_of_trn2():
    (found,) = parse_neuron_ls(json.dumps([entry(0, nc_count=8, logical_neuroncore_config=2)]))
    assert (found.cores, found.ranks) == (8, 4)


def test_older_tools_leave_fields_out():
    """As Ray's test has it, of 2023: no ids, no affinity; and processes without a runtime's version."""
    text = (
        '[{"neuron_device":0,"bdf":"00:1e.0","connected_to":null,"nc_count":2,'
        '"memory_size":34359738368,"neuron_processes":[{"pid":7}]}]'
    )
    (found,) = parse_neuron_ls(text)
    assert found == Device(0, 2, None, 34359738368, (), (Holder(7, "", None),), "")


@pytest.mark.parametrize(
    "given",
    [[{}], [{"neuron_device": None, "nc_count": "?", "neuron_processes": None, "neuroncore_ids": None}]],
)
def test_nothing_told_is_nothing_known(given: list[object]):
    assert parse_neuron_ls(json.dumps(given)) == [Device(0)]
    assert Device(0).ranks is None


def test_words_before_the_list_and_a_list_in_an_object():
    listed = json.dumps([entry(0)])
    assert parse_neuron_ls(f"instance-type: trn1.2xlarge\n{listed}") == parse_neuron_ls(listed)
    assert parse_neuron_ls('{"devices": []}') == []


@pytest.mark.parametrize(
    "changes",
    [
        {"neuron_processes": ["x", None, {"pid": "x"}]},
        {"neuron_processes": {"pid": 1}},
        {"neuroncore_ids": 3, "nc_count": float("inf")},
    ],
)
def test_fields_of_another_form_are_unknown(changes: dict[str, object]):
    (found,) = parse_neuron_ls(json.dumps([entry(5, **changes)]))
    assert (found.number, found.holders) == (5, ())
    assert found.cores == (None if "nc_count" in changes else 2)


@pytest.mark.parametrize("text", ["", "no devices", "{}", "[1, ", '{"a": 1}'])
def test_what_is_no_listing(text: str):
    with pytest.raises(ValueError):
        parse_neuron_ls(text)


def test_devices_in_dev(tmp_path: Path):
    for name in ("neuron0", "neuron10", "neuron2", "neuron_misc", "null", "neuron"):
        (tmp_path / name).touch()
    assert device_files(tmp_path) == [0, 2, 10]
    assert device_files(tmp_path / "none") == []


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_drivers_own_files(tmp_path: Path):
    """Of neuron0 the count is told, neuron1 has it at the new place, of neuron2 cores are folders."""
    write(tmp_path / "neuron0/core_count", "2\n")
    write(tmp_path / "neuron0/info/architecture/instance_type", "Trn1\n")
    write(tmp_path / "neuron1/info/core_count", "2\n")
    for core in range(2):
        write(tmp_path / f"neuron2/neuron_core{core}/info/x", "")
    write(tmp_path / "neuron_other/core_count", "9\n")
    assert [(one.number, one.cores) for one in sysfs_devices(tmp_path)] == [(0, 2), (1, 2), (2, 2)]
    assert architecture(tmp_path) == "Trn1"
    assert architecture(tmp_path / "none") == ""


def test_the_loaded_driver(tmp_path: Path):
    assert driver_version(tmp_path / "neuron") is None
    write(tmp_path / "neuron/version", "2.26.10.0\n")
    assert driver_version(tmp_path / "neuron") == "2.26.10.0"
    (tmp_path / "neuron/version").unlink()
    assert driver_version(tmp_path / "neuron") == "?"
