"""neuron-monitor as a program beside the sampler: asked as its guide says, heard, missed, ended with us."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from neuron_stream import report, stand_in

from kitae.watch import neuron_monitor
from kitae.watch.neuron_monitor import NeuronMonitor, config
from kitae.watch.sources import open_source


def wait_for(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_is_asked_for_all_groups():
    asked = config(5.0)
    assert asked["period"] == "5s"
    assert config(0.5)["period"] == "500ms"
    assert [one["type"] for one in asked["neuron_runtimes"][0]["metrics"]] == [
        "neuroncore_counters",
        "memory_used",
        "neuron_runtime_vcpu_usage",
        "execution_stats",
    ]
    assert [one["type"] for one in asked["system_metrics"]] == [
        "vcpu_usage",
        "memory_info",
        "neuron_hw_counters",
    ]


def test_it_tells_of_32_cores(tmp_path: Path):
    monitor = NeuronMonitor(str(stand_in(tmp_path, sys.executable, [report()])), 5.0)
    try:
        wait_for(lambda: len(monitor.read().cores) == 32)
        assert json.loads((tmp_path / "seen.json").read_text())["settings"] == config(5.0)
    finally:
        monitor.close()
    assert not psutil.pid_exists(json.loads((tmp_path / "seen.json").read_text())["pid"])


def test_one_that_says_nothing_is_missed_and_started_again(tmp_path: Path):
    program = tmp_path / "neuron-monitor"
    program.write_text("#!/bin/sh\necho 'no devices found' >&2; echo x >> started; exit 3\n")
    program.chmod(0o755)
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        monitor = NeuronMonitor(str(program), 5.0, clock)
        try:
            monitor._process.wait()
            monitor._reader.join()
            assert monitor.read().notes == ()
            clock.now += 16
            assert monitor.read().notes == (
                "neuron-monitor has told nothing for 16 s: it ended with code 3 (no devices found)",
            )
            clock.now += 60
            monitor.read()
            monitor._process.wait()
            assert (tmp_path / "started").read_text() == "x\nx\n"
        finally:
            monitor.close()


def test_it_ends_with_a_sampler_that_is_killed(tmp_path: Path):
    program = stand_in(tmp_path, sys.executable, [report(cores=2)])
    code = (
        f"import sys, time; sys.path[:] = {sys.path}; from kitae.watch.neuron_monitor import NeuronMonitor; "
        f"NeuronMonitor({str(program)!r}, 5.0); time.sleep(60)"
    )
    sampler = subprocess.Popen([sys.executable, "-c", code])
    seen = tmp_path / "seen.json"
    wait_for(lambda: seen.is_file() and bool(seen.read_text()))
    pid = json.loads(seen.read_text())["pid"]
    sampler.kill()
    sampler.wait()
    wait_for(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_a_sample_has_its_cores_and_the_host_of_psutil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        neuron_monitor, "find", lambda: str(stand_in(tmp_path, sys.executable, [report(cores=4)]))
    )
    source = open_source(5.0, tmp_path, backend="xla", node="one")
    try:
        wait_for(lambda: len(source.sample().cores) == 4)
        sample = source.sample()
    finally:
        source.close()
    assert (sample.source, sample.node, sample.processes[0].tag) == ("neuron-monitor", "one", "rank 0")
    assert sample.host.memory_total_bytes == psutil.virtual_memory().total, "of this machine, as it says"
    assert sample.host.disk_total_bytes is not None
