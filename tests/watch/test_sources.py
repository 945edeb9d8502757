"""What tells of cores: NVML's functions as documented, psutil on this machine, and whatever fails."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from kitae.watch import sources
from kitae.watch.host import Host
from kitae.watch.nvml import Nvml, visible
from kitae.watch.samples import CoreSample, DeviceSample, HostSample, ProcessSample
from kitae.watch.sources import open_source
from kitae.watch.told import Told

GIB = 1 << 30


class NVMLError(Exception):
    pass


def refuse(*given: object) -> Any:
    raise NVMLError("Not Supported")


def nvml(**changes: Any) -> SimpleNamespace:
    """The functions of pynvml that are asked, with two cards."""
    functions = {
        "NVMLError": NVMLError,
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_MEMORY_ERROR_TYPE_CORRECTED": 0,
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
        "NVML_VOLATILE_ECC": 0,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda card: f"GPU-{card}abc",
        "nvmlDeviceGetName": lambda card: "NVIDIA H200",
        "nvmlDeviceGetUtilizationRates": lambda card: SimpleNamespace(gpu=90 - card, memory=40),
        "nvmlDeviceGetMemoryInfo": lambda card: SimpleNamespace(used=(card + 1) * GIB, total=139 * GIB),
        "nvmlDeviceGetTemperature": lambda card, sensor: 61,
        "nvmlDeviceGetPowerUsage": lambda card: 412500,
        "nvmlDeviceGetTotalEccErrors": lambda card, kind, since: 3 * (1 - kind),
        "nvmlDeviceGetComputeRunningProcesses": lambda card: [
            SimpleNamespace(pid=77, usedGpuMemory=(card + 1) * GIB)
        ],
    }
    return SimpleNamespace(**{**functions, **changes})


@pytest.fixture(autouse=True)
def _all_cards(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_a_card_is_a_core_and_a_device():
    told = Nvml(nvml()).read()
    assert told.cores[1] == CoreSample(1, 0.89, 2 * GIB, 139 * GIB)
    assert told.devices[0] == DeviceSample(0, "NVIDIA H200", 3, 0, 61.0, 412.5)
    assert told.processes == (ProcessSample(77, memory_used_bytes=3 * GIB, cores=(0, 1)),)


@pytest.mark.parametrize("name", [name for name in vars(nvml()) if name.startswith("nvmlDeviceGet")])
def test_what_a_card_does_not_tell_is_left_out(name: str):
    if name in ("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"):
        return
    told = Nvml(nvml(**{name: refuse})).read()
    assert (len(told.cores), len(told.devices)) == (2, 2)


def test_memory_that_a_container_does_not_tell():
    hidden = [SimpleNamespace(pid=77, usedGpuMemory=None)]
    told = Nvml(nvml(nvmlDeviceGetComputeRunningProcesses=lambda card: hidden)).read()
    assert told.processes == (ProcessSample(77, cores=(0, 1)),)


@pytest.mark.parametrize(
    ("value", "cards"),
    [(None, [0, 1]), ("1", [1]), ("1,0", [1, 0]), ("", []), ("GPU-1a", [1]), ("0,7,1", [0]), ("-1", [])],
)
def test_only_cards_that_the_training_sees_count(value: str | None, cards: list[int]):
    assert visible(value, {0: "GPU-0abc", 1: "GPU-1abc"}) == cards


def test_a_machine_without_cards_has_no_nvml(monkeypatch: pytest.MonkeyPatch):
    for module in (nvml(nvmlDeviceGetCount=lambda: 0), nvml(nvmlInit=refuse)):
        monkeypatch.setitem(sys.modules, "pynvml", module)
        assert Nvml.find() is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Nvml.find() is None
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    assert Nvml.find() is not None


@pytest.fixture
def ranks() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes as torch's launcher starts them, and one of somebody else."""
    words = [sys.executable, "-c", "input()"]
    started = [
        subprocess.Popen(words, stdin=subprocess.PIPE, env={**os.environ, **more})
        for more in ({"RANK": "0"}, {"RANK": "1"}, {})
    ]
    yield started
    for one in started:
        one.communicate(b"\n")


def test_the_host_tells_of_its_cores_and_of_ranks(ranks: list[subprocess.Popen[bytes]], tmp_path: Path):
    told = Host(tmp_path, os.getpid()).read()
    assert len(told.cores) == psutil.cpu_count()
    assert {one.pid: one.tag for one in told.processes if one.pid in [one.pid for one in ranks]} == {
        ranks[0].pid: "rank 0",
        ranks[1].pid: "rank 1",
    }
    own = next(one for one in told.processes if one.pid == os.getpid())
    assert (own.tag, own.memory_used_bytes > 1 << 20) == ("launcher", True)
    assert told.host.memory_total_bytes == psutil.virtual_memory().total
    assert 0 < told.host.disk_free_bytes <= told.host.disk_total_bytes


def test_a_process_alone_is_the_training(tmp_path: Path):
    assert [one.tag for one in Host(tmp_path, os.getpid()).read().processes] == ["training"]
    assert Host(tmp_path, None).read().processes == ()
    assert Host(tmp_path, 2**22 + 1).read().processes == ()


class Broken:
    name = "nvml"

    def read(self) -> Told:
        raise RuntimeError("GPU is lost")

    def close(self) -> None:
        """Nothing is held."""


def test_a_source_that_fails_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sources.SOURCES, "nvml", lambda period_s: Broken())
    sample = open_source(1.0, tmp_path, backend="cuda").sample()
    assert (sample.source, sample.cores, sample.notes) == ("nvml", (), ("nvml: GPU is lost",))
    assert sample.host.memory_total_bytes is not None


def test_one_that_cannot_be_opened_is_a_note_and_the_cpu_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(period_s: float) -> None:
        raise OSError("no memory")

    monkeypatch.setitem(sources.SOURCES, "neuron-monitor", fail)
    sample = open_source(1.0, tmp_path, backend="xla", node="one").sample()
    assert (sample.source, len(sample.cores)) == ("host", psutil.cpu_count())
    assert sample.notes == (
        "neuron-monitor: no memory",
        "there is no neuron-monitor here: the cores are those of the CPU",
    )


def test_a_training_on_the_cpu_is_told_of_by_the_cpu_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sources.SOURCES, "nvml", lambda period_s: Broken())
    assert open_source(1.0, tmp_path, backend="cpu").sample().source == "host"
    assert open_source(1.0, tmp_path).sample().source == "nvml", "whoever only looks sees what there is"


def test_processes_are_joined_by_number():
    here = (ProcessSample(1, "rank 0", 0.9, 5), ProcessSample(2, "rank 1", 0.8, 6))
    there = (ProcessSample(2, "", None, 70, (3,)), ProcessSample(9, "other", None, 80))
    assert sources._joined(here, there) == (
        ProcessSample(1, "rank 0", 0.9),
        ProcessSample(2, "rank 1", 0.8, 70, (3,)),
        ProcessSample(9, "other", None, 80),
    )
    assert sources._joined(here, ()) == here


def test_the_host_fills_what_a_tool_does_not_tell():
    one = HostSample(cpu_utilisation=0.5)
    assert sources._filled(one, HostSample(0.9, 7)) == HostSample(0.5, 7)
