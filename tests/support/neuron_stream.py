"""Reports of neuron-monitor as its user guide has them, for machines of any size, and what a run keeps.

There is no Trn1 sample in the guide: the fields are those of the guide and of a report of a real inf2.xlarge
(the same core version), the sizes those of trn1.32xlarge. Everything follows from the arguments.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kitae.watch.neuron_report import NeuronCounts
from kitae.watch.samples import HostSample, Sample, lines_file

GIB = 1 << 30
BEGUN_S = 1_796_065_200.0
NODES = ("queue1-st-trn1-1", "queue1-st-trn1-2")
"""Of the recorded stream: two trn1.32xlarge, 64 cores."""

Busy = Callable[[int, int], float]
"""Percent that a core is busy, by the number of the report and of the core."""


def training(report: int, core: int) -> float:
    """About as busy as cores of a training are, never twice the same."""
    return 78.0 + (7 * report + 13 * core) % 17


def idle(report: int, core: int) -> float:
    """Nothing."""
    return 0.0


def report(
    number: int = 0, cores: int = 32, busy: Busy = training, per_device: int = 2, **changes: Any
) -> dict[str, Any]:
    """One report of a machine where one process a core trains; `changes` are of the whole."""
    devices = cores // per_device
    return {
        "neuron_runtime_data": [_runtime(number, core, busy) for core in range(cores)],
        "system_data": {
            "memory_info": {
                "period": 5.0,
                "memory_total_bytes": 512 * GIB,
                "memory_used_bytes": 64 * GIB,
                "swap_total_bytes": 0,
                "swap_used_bytes": 0,
                "error": "",
            },
            "neuron_hw_counters": {
                "period": 5.0,
                "neuron_devices": [
                    {
                        "neuron_device_index": index,
                        "mem_ecc_corrected": int(number % 50 == 7 and index == 3),
                        "mem_ecc_uncorrected": 0,
                        "sram_ecc_corrected": 0,
                        "sram_ecc_uncorrected": 0,
                    }
                    for index in range(devices)
                ],
                "error": "",
            },
            "vcpu_usage": {
                "period": 5.0,
                "average_usage": {
                    "user": 12.5,
                    "nice": 0,
                    "system": 2.5,
                    "idle": 84.0,
                    "io_wait": 1.0,
                    "irq": 0,
                    "soft_irq": 0,
                },
                "usage_data": {},
                "context_switch_count": 92890,
                "error": "",
            },
        },
        "instance_info": {"instance_type": "trn1.32xlarge", "instance_region": "us-west-2", "error": ""},
        "neuron_hardware_info": {
            "neuron_device_type": "trainium",
            "neuron_device_version": "v2",
            "neuroncore_version": "v2",
            "neuron_device_count": devices,
            "neuron_device_memory_size": 16 * GIB * per_device,
            "neuroncore_per_device_count": per_device,
            "logical_neuroncore_config": 1,
            "error": "",
        },
        **changes,
    }


def _runtime(number: int, core: int, busy: Busy) -> dict[str, Any]:
    memory = {"constants": GIB, "model_code": GIB // 4, "model_shared_scratchpad": 0}
    memory |= {"runtime_memory": GIB // 8, "tensors": 8 * GIB + core * (1 << 20)}
    percent = busy(number, core)
    return {
        "pid": 4000 + core,
        "address": str(4000 + core),
        "neuron_runtime_tag": f"rank {core}",
        "error": "",
        "report": {
            "neuroncore_counters": {
                "period": 5.0,
                "neuroncores_in_use": {
                    str(core): {"neuroncore_utilization": percent, "flops": int(percent * 9.5e11)}
                },
                "error": "",
            },
            "execution_stats": {
                "period": 5.0,
                "error_summary": dict.fromkeys(
                    ("generic", "numerical", "transient", "model", "runtime", "hardware"), 0
                ),
                "execution_summary": {
                    "completed": 40,
                    "completed_with_err": 0,
                    "completed_with_num_err": 0,
                    "timed_out": 0,
                    "incorrect_input": 0,
                    "failed_to_queue": 0,
                },
                "latency_stats": {"total_latency": None, "device_latency": None},
                "error": "",
            },
            "memory_used": {
                "period": 5.0,
                "neuron_runtime_used_bytes": {
                    "host": GIB,
                    "neuron_device": sum(memory.values()),
                    "usage_breakdown": {
                        "host": {"application_memory": GIB, "constants": 0, "dma_buffers": 0, "tensors": 0},
                        "neuroncore_memory_usage": {str(core): memory},
                    },
                },
                "loaded_models": [],
                "error": "",
            },
            "neuron_runtime_vcpu_usage": {
                "period": 5.0,
                "vcpu_usage": {"user": 1.5, "system": 0.25},
                "error": "",
            },
        },
    }


def sample_of(
    told: dict[str, Any], node: str, time: float, period_s: float = 5.0, counts: NeuronCounts | None = None
) -> Sample:
    """A report as a sample of a node."""
    counts = counts or NeuronCounts()
    reading = counts.read(told)
    disk = HostSample(**{**vars(reading.host), "disk_free_bytes": 900 * GIB, "disk_total_bytes": 1200 * GIB})
    errors = {kind: count for kind, count in counts.errors.items() if count}
    return Sample(
        time=time,
        period_s=period_s,
        source="neuron-monitor",
        node=node,
        host=disk,
        cores=reading.cores,
        devices=reading.devices,
        processes=reading.processes,
        errors=errors,
        notes=reading.notes,
    )


def recorded_stream(
    run: Path,
    *,
    nodes: Sequence[str] = NODES,
    cores: int = 32,
    samples: int = 24,
    busy: Busy = training,
    begun: float = BEGUN_S,
    period_s: float = 5.0,
) -> dict[str, list[Sample]]:
    """What neuron-monitor told on nodes of so many cores each, written into a run; by default 64 cores."""
    found: dict[str, list[Sample]] = {}
    for place, node in enumerate(nodes):
        counts = NeuronCounts()
        found[node] = [
            sample_of(
                report(100 * place + number, cores, busy),
                node,
                begun + (number + 1) * period_s,
                period_s,
                counts,
            )
            for number in range(samples)
        ]
        path = lines_file(run, node)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(one.as_json()) + "\n" for one in found[node]))
    return found


STAND_IN = """#!{python}
import json, sys, time
settings = json.load(open(sys.argv[sys.argv.index("-c") + 1]))
open({seen!r}, "w").write(json.dumps({{"pid": __import__("os").getpid(), "settings": settings}}))
reports = {reports}
number = 0
while True:
    print(json.dumps(reports[number % len(reports)]), flush=True)
    number += 1
    time.sleep({every_s})
"""


def stand_in(folder: Path, python: str, reports: Sequence[dict[str, Any]], every_s: float = 0.05) -> Path:
    """A program neuron-monitor in `folder` that tells these reports again and again; see `seen.json`."""
    program = folder / "neuron-monitor"
    text = STAND_IN.format(
        python=python, seen=str(folder / "seen.json"), reports=list(reports), every_s=every_s
    )
    program.write_text(text)
    program.chmod(0o755)
    return program
