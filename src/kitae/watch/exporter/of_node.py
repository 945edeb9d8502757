"""What the newest samples of a run's machines tell, as numbers."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from kitae.watch.exporter.numbers import Numbers
from kitae.watch.samples import HostSample, Sample, latest_samples

FRESH_S, FRESH_PERIODS = 60.0, 5.0
"""A sample that is older than both is of a machine that is watched no more."""
_HOST = {
    "cpu_utilisation": "kitae_host_cpu_utilisation_ratio",
    "memory_total_bytes": "kitae_host_memory_size_bytes",
    "disk_total_bytes": "kitae_host_disk_size_bytes",
}
"""Where the name is not that of the field."""
_DEVICE = {"temperature_c": "kitae_device_temperature_celsius", "power_w": "kitae_device_power_watts"}


def node_numbers(path: Path, run: str, now: float) -> Numbers:
    """Of all machines of a run whose samples are fresh at `now` (seconds since 1970)."""
    found = Numbers()
    for node, sample in latest_samples(path).items():
        if now - sample.time <= max(FRESH_S, FRESH_PERIODS * sample.period_s):
            _add_sample(found, sample, run, sample.node or node)
    return found


def _add_sample(found: Numbers, sample: Sample, run: str, node: str) -> None:
    found.add("kitae_node_sample_timestamp_seconds", sample.time, run, node, sample.source)
    _add_cores(found, sample, run, node)
    for field in fields(HostSample):
        name = _HOST.get(field.name, f"kitae_host_{field.name}")
        found.add(name, getattr(sample.host, field.name), run, node)
    for device in sample.devices:
        for kind in ("corrected", "uncorrected"):
            count = getattr(device, f"ecc_{kind}")
            found.add("kitae_device_ecc_errors_total", count, run, node, device.index, kind)
        for name, family in _DEVICE.items():
            found.add(family, getattr(device, name), run, node, device.index)
    for process in sample.processes:
        labels = (run, node, process.pid, process.tag)
        found.add("kitae_process_cpu_cores", process.cpu_utilisation, *labels)
        found.add("kitae_process_memory_used_bytes", process.memory_used_bytes, *labels)
    for kind, count in sample.errors.items():
        found.add("kitae_runtime_errors_total", count, run, node, kind)


def _add_cores(found: Numbers, sample: Sample, run: str, node: str) -> None:
    for core in sample.cores:
        labels = (run, node, core.index)
        found.add("kitae_core_utilisation_ratio", core.utilisation, *labels)
        found.add("kitae_core_memory_used_bytes", core.memory_used_bytes, *labels)
        found.add("kitae_core_memory_size_bytes", core.memory_total_bytes, *labels)
        found.add("kitae_core_flops_per_second", core.flops_per_s, *labels)
