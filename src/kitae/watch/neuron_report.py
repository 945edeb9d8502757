"""A report of neuron-monitor, whatever it holds: fields may be missing, or have the names of older tools.

The names are those of the SDK's user guides of 2020 (beta) to 2026 and of reports of real machines; the first
of each row is today's. Counts of errors are of a report's period, and are summed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from kitae.watch.samples import CoreSample, DeviceSample, HostSample, ProcessSample

RUNTIMES = ("neuron_runtime_data", "runtime_data")
COUNTERS = ("neuroncore_counters", "nc_counters")
IN_USE = ("neuroncores_in_use", "neuron_cores")
FLOPS = ("flops", "effective_flops")
STATS = ("execution_stats", "inference_stats")
OUTCOMES = ("execution_summary", "inference_summary")
USED = ("neuron_runtime_used_bytes", "runtime_memory")
ON_DEVICE = ("neuron_device", "device")
MODEL_USED = ("memory_used_bytes", "memory_used", "memory_usage")
CORE_OF_MODEL = ("neuroncore_index", "neuron_core")
DEVICE_INDEX = ("neuron_device_index", "device_index")
HARDWARE_COUNTERS = ("neuron_hw_counters", "hw_counters")
CPU = ("vcpu_usage", "cpu_usage")

FAILED = ("timed_out", "incorrect_input", "failed_to_queue")
"""Outcomes of executions that no kind of error counts."""
_ECC = {
    True: ("mem_ecc_corrected", "sram_ecc_corrected"),
    False: ("mem_ecc_uncorrected", "sram_ecc_uncorrected"),
}
_PHYSICAL_CORES = 8
"""Of a chip of those that join cores to logical ones; reports may count either."""
_MOST_CORES = 4096
"""More than any machine has: a broken report must not make one sample of millions."""


@dataclass(frozen=True)
class NeuronReading:
    """What one report tells."""

    period_s: float | None
    cores: tuple[CoreSample, ...]
    devices: tuple[DeviceSample, ...]
    processes: tuple[ProcessSample, ...]
    host: HostSample
    notes: tuple[str, ...]


@dataclass
class NeuronCounts:
    """What reports count since the sampler began."""

    errors: Counter[str] = field(default_factory=Counter)
    """By kind."""
    ecc: Counter[tuple[int, bool]] = field(default_factory=Counter)
    """By device, and whether they were corrected."""

    def read(self, report: object) -> NeuronReading:
        """A report, which is counted; a part that makes no sense is left out."""
        whole = _map(report)
        reports = [_map(one) for one in _list(_any(whole, RUNTIMES))]
        bodies = [_map(one.get("report")) for one in reports]
        system = _map(whole.get("system_data"))
        counters = [_map(_any(one, HARDWARE_COUNTERS)) for one in (system, *bodies)]
        self._count(bodies, counters)
        hardware = _map(whole.get("neuron_hardware_info"))
        return NeuronReading(
            period_s=_period(bodies, system),
            cores=tuple(_cores(bodies, hardware)),
            devices=tuple(self._devices(hardware)),
            processes=tuple(map(_process, reports, bodies)),
            host=_host(system),
            notes=tuple(dict.fromkeys(_notes(whole, reports, bodies, system))),
        )

    def _count(self, bodies: Sequence[Mapping[str, Any]], counters: Sequence[Mapping[str, Any]]) -> None:
        for body in bodies:
            stats = _map(_any(body, STATS))
            for kind, count in _map(stats.get("error_summary")).items():
                self.errors[str(kind)] += _count(count)
            outcomes = _map(_any(stats, OUTCOMES))
            for kind in FAILED:
                self.errors[kind] += _count(outcomes.get(kind))
        for group in counters:
            for device in map(_map, _list(group.get("neuron_devices"))):
                index = _index(_any(device, DEVICE_INDEX))
                for corrected, names in _ECC.items():
                    if index is not None:
                        self.ecc[index, corrected] += sum(_count(device.get(name)) for name in names)

    def _devices(self, hardware: Mapping[str, Any]) -> Iterator[DeviceSample]:
        told = {index for index, _ in self.ecc}
        name = str(hardware.get("neuron_device_type") or "")
        count = min(_count(hardware.get("neuron_device_count")), _MOST_CORES)
        for index in sorted(told | set(range(count))):
            corrected, uncorrected = (self.ecc.get((index, kind)) for kind in (True, False))
            yield DeviceSample(index, name, corrected, uncorrected)


def _cores(bodies: Sequence[Mapping[str, Any]], hardware: Mapping[str, Any]) -> Iterator[CoreSample]:
    """All cores of the machine: one that no process uses does nothing."""
    each = _cores_of_device(hardware)
    count = min(_count(hardware.get("neuron_device_count")) * each, _MOST_CORES)
    busy: dict[int, float] = {}
    flops: dict[int, float] = {}
    used: Counter[int] = Counter()
    for body in bodies:
        for index, core in _in_use(body):
            busy[index] = busy.get(index, 0.0) + (_number(core.get("neuroncore_utilization")) or 0.0)
            speed = _number(_any(core, FLOPS))
            if speed is not None:
                flops[index] = flops.get(index, 0.0) + speed
        used.update(_memory_of_cores(body))
    memory = _whole(hardware.get("neuron_device_memory_size"))
    total = memory // each if memory and each else None
    for index in sorted({*range(count), *busy, *used}):
        percent = min(max(busy.get(index, 0.0), 0.0), 100.0)
        of_core = used.get(index, 0) if used or not bodies else None
        yield CoreSample(index, percent / 100, of_core, total, flops.get(index))


def _cores_of_device(hardware: Mapping[str, Any]) -> int:
    each = _count(hardware.get("neuroncore_per_device_count"))
    joined = _count(hardware.get("logical_neuroncore_config"))
    return each // joined if joined > 1 and each == _PHYSICAL_CORES else each


def _in_use(body: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for name, core in _map(_any(_map(_any(body, COUNTERS)), IN_USE)).items():
        index = _index(name)
        if index is not None:
            yield index, _map(core)


def _memory_of_cores(body: Mapping[str, Any]) -> Counter[int]:
    """Bytes by core: as they are told, or as the models that are loaded tell."""
    memory = _map(body.get("memory_used"))
    breakdown = _map(_map(_any(memory, USED)).get("usage_breakdown"))
    told = _map(breakdown.get("neuroncore_memory_usage"))
    found: Counter[int] = Counter()
    for name, kinds in told.items():
        index = _index(name)
        if index is not None:
            found[index] += sum(map(_count, _map(kinds).values()))
    if told:
        return found
    for model in map(_map, _list(memory.get("loaded_models"))):
        for part in map(_map, _map(model.get("subgraphs")).values()):
            index = _index(_any(part, CORE_OF_MODEL))
            if index is not None:
                found[index] += _count(_any(_map(_any(part, MODEL_USED)), ON_DEVICE))
    return found


def _process(runtime: Mapping[str, Any], body: Mapping[str, Any]) -> ProcessSample:
    used = _map(_any(_map(body.get("memory_used")), USED))
    pid = _whole(runtime.get("pid")) or 0
    tag = runtime.get("neuron_runtime_tag")
    return ProcessSample(
        pid=pid,
        tag="" if tag is None or str(tag) == str(pid) else str(tag)[:255],
        memory_used_bytes=_whole(_any(used, ON_DEVICE)),
        cores=tuple(sorted({index for index, _ in _in_use(body)})),
    )


def _host(system: Mapping[str, Any]) -> HostSample:
    memory = _map(system.get("memory_info"))
    usage = _map(_map(_any(system, CPU)).get("average_usage"))
    idle = [_number(usage.get(name)) or 0.0 for name in ("idle", "io_wait")]
    return HostSample(
        cpu_utilisation=min(max(1 - sum(idle) / 100, 0.0), 1.0) if usage else None,
        memory_used_bytes=_whole(memory.get("memory_used_bytes")),
        memory_total_bytes=_whole(memory.get("memory_total_bytes")),
        swap_used_bytes=_whole(memory.get("swap_used_bytes")),
    )


def _period(bodies: Sequence[Mapping[str, Any]], system: Mapping[str, Any]) -> float | None:
    """Measured seconds, of the cores where they tell it."""
    groups = [_map(_any(body, COUNTERS)) for body in bodies] + [_map(one) for one in system.values()]
    known = (_number(group.get("period")) for group in groups)
    return next((one for one in known if one is not None and one > 0), None)


def _notes(
    whole: Mapping[str, Any],
    reports: Sequence[Mapping[str, Any]],
    bodies: Sequence[Mapping[str, Any]],
    system: Mapping[str, Any],
) -> Iterator[str]:
    """What the tool itself could not read."""
    yield from _error("neuron_hardware_info", whole.get("neuron_hardware_info"))
    for report in reports:
        yield from _error(f"runtime {report.get('pid', '?')}", report)
    for groups in (*bodies, system):
        for name, group in groups.items():
            yield from _error(str(name), group)


def _error(name: str, group: object) -> Iterator[str]:
    error = _map(group).get("error")
    if isinstance(error, str) and error.strip():
        yield f"neuron-monitor, {name}: {error.strip()[:200]}"


def _any(values: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return None
    return number if isfinite(number) else None


def _whole(value: object) -> int | None:
    """A count, an index or bytes: none of them is negative."""
    number = _number(value)
    return int(number) if number is not None and number >= 0 else None


def _index(value: object) -> int | None:
    number = _whole(value)
    return number if number is not None and number < _MOST_CORES else None


def _count(value: object) -> int:
    return _whole(value) or 0
