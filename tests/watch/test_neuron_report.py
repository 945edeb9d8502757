"""Reports of neuron-monitor: today's, older ones, those of real machines, broken ones."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neuron_stream import GIB, NODES, idle, recorded_stream, report

from kitae.watch.neuron_report import NeuronCounts, NeuronReading
from kitae.watch.samples import CoreSample, Sample, read_samples


def read(told: object) -> NeuronReading:
    return NeuronCounts().read(told)


def test_a_trn1_has_32_cores_of_16_gib_each():
    told = read(report())
    assert [core.index for core in told.cores] == list(range(32))
    assert told.cores[3] == CoreSample(
        index=3,
        utilisation=pytest.approx(0.83),
        memory_used_bytes=GIB + GIB // 4 + GIB // 8 + 8 * GIB + 3 * (1 << 20),
        memory_total_bytes=16 * GIB,
        flops_per_s=83 * 9.5e11,
    )
    assert (len(told.devices), told.devices[15].name) == (16, "trainium")
    assert (told.processes[5].pid, told.processes[5].tag, told.processes[5].cores) == (4005, "rank 5", (5,))
    assert told.host.cpu_utilisation == pytest.approx(0.15)
    assert (told.host.memory_used_bytes, told.host.memory_total_bytes) == (64 * GIB, 512 * GIB)
    assert (told.period_s, told.notes) == (5.0, ())


def test_cores_that_nobody_uses_do_nothing():
    """Before the first graph is loaded there is no process, and 32 cores at 0."""
    told = read(report(neuron_runtime_data=[]))
    assert [core.utilisation for core in told.cores] == [0.0] * 32


def test_32_cores_at_nothing_are_read_as_such():
    """T59: each of the 32 cores is told, all at 0.0."""
    assert [(core.index, core.utilisation) for core in read(report(busy=idle)).cores] == [
        (index, 0.0) for index in range(32)
    ]


def test_errors_and_ecc_are_summed_over_reports():
    counts, told = NeuronCounts(), report()
    stats = told["neuron_runtime_data"][0]["report"]["execution_stats"]
    stats["error_summary"]["numerical"] = 2
    stats["execution_summary"]["timed_out"] = 1
    device = told["system_data"]["neuron_hw_counters"]["neuron_devices"][4]
    device |= {"mem_ecc_corrected": 3, "sram_ecc_corrected": 1, "sram_ecc_uncorrected": 1}
    counts.read(told)
    devices = counts.read(told).devices
    assert {kind: count for kind, count in counts.errors.items() if count} == {"numerical": 4, "timed_out": 2}
    assert (devices[4].ecc_corrected, devices[4].ecc_uncorrected) == (8, 2)
    assert (devices[5].ecc_corrected, devices[5].ecc_uncorrected) == (0, 0)


def test_a_tag_that_is_only_the_number_says_nothing():
    told = report(cores=2)
    told["neuron_runtime_data"][0]["neuron_runtime_tag"] = "4000"
    assert [one.tag for one in read(told).processes] == ["", "rank 1"]


def test_what_the_tool_could_not_read_is_noted_once():
    told = report(cores=4)
    for runtime in told["neuron_runtime_data"]:
        runtime["report"]["memory_used"]["error"] = "no such device"
    told["neuron_hardware_info"]["error"] = "the driver is not loaded"
    assert read(told).notes == (
        "neuron-monitor, neuron_hardware_info: the driver is not loaded",
        "neuron-monitor, memory_used: no such device",
    )


def _real_inf2() -> dict[str, Any]:
    """The form of a report of an inf2.xlarge of 2026: `effective_flops`, and no memory by core."""
    return {
        "neuron_hardware_info": {
            "logical_neuroncore_config": 1,
            "neuron_device_count": 1,
            "neuron_device_memory_size": 34359738368,
            "neuron_device_type": "inferentia2",
            "neuroncore_per_device_count": 2,
        },
        "neuron_runtime_data": [
            {
                "pid": 2199,
                "report": {
                    "neuroncore_counters": {
                        "neuroncores_in_use": {
                            "0": {"effective_flops": 875590474948, "neuroncore_utilization": 89.4},
                            "1": {"effective_flops": 0, "neuroncore_utilization": 0},
                        },
                        "period": 1.000665759,
                    },
                    "memory_used": {"neuron_runtime_used_bytes": {"host": 1166249984, "device": 141649980}},
                },
            }
        ],
        "system_data": {"neuron_hw_counters": {"neuron_devices": [{"neuron_device_index": 0}]}},
    }


def test_a_real_machine_of_today():
    told = read(_real_inf2())
    assert [(core.utilisation, core.flops_per_s) for core in told.cores] == [(0.894, 875590474948), (0.0, 0)]
    assert {core.memory_total_bytes for core in told.cores} == {16 * GIB}
    assert {core.memory_used_bytes for core in told.cores} == {None}, "it is not told, which is not 0"
    assert told.processes[0].memory_used_bytes == 141649980
    assert told.period_s == 1.000665759


def _beta() -> dict[str, Any]:
    """The form of the guide of 2020."""
    model = {"subgraphs": {"sg00": {"memory_used": {"host": 1, "device": 500000}, "neuron_core": 2}}}
    other = {"subgraphs": {"sg00": {"memory_usage": {"host": 1, "device": 200}, "neuron_core": 0}}}
    return {
        "runtime_data": [
            {
                "runtime_index": 0,
                "error": "",
                "report": {
                    "nc_counters": {
                        "period": 1.000113182,
                        "neuron_cores": {
                            "0": {"neuroncore_utilization": 42.01, "loaded_models": ["a:b"]},
                            "2": {"neuroncore_utilization": 42.03},
                        },
                    },
                    "inference_stats": {
                        "error_summary": {"generic": 1},
                        "inference_summary": {"failed_to_queue": 2},
                    },
                    "memory_used": {
                        "runtime_memory": {"host": 1, "device": 2000000},
                        "loaded_models": [model, other],
                    },
                    "hw_counters": {"neuron_devices": [{"device_index": 0, "mem_ecc_uncorrected": 1}]},
                },
            }
        ],
        "system_data": {"cpu_usage": {"average_usage": {"user": 30.0, "idle": 40.0, "io_wait": 5.0}}},
        "instance_data": {"instance_type": "inf1.xlarge"},
    }


def test_the_oldest_form():
    counts = NeuronCounts()
    told = counts.read(_beta())
    assert [(core.index, core.utilisation, core.memory_used_bytes) for core in told.cores] == [
        (0, pytest.approx(0.4201), 200),
        (2, pytest.approx(0.4203), 500000),
    ]
    assert dict(counts.errors.items()) == {
        "generic": 1,
        "timed_out": 0,
        "incorrect_input": 0,
        "failed_to_queue": 2,
    }
    assert (told.devices[0].ecc_uncorrected, told.host.cpu_utilisation) == (1, pytest.approx(0.55))


@pytest.mark.parametrize(("each", "joined", "cores"), [(8, 2, 4), (4, 2, 4), (8, 1, 8), (2, 1, 2)])
def test_cores_of_trn2_are_counted_as_they_are_seen(each: int, joined: int, cores: int):
    hardware = {"neuron_device_count": 1, "neuroncore_per_device_count": each}
    hardware |= {"neuron_device_memory_size": 96 * GIB, "logical_neuroncore_config": joined}
    told = read({"neuron_hardware_info": hardware})
    assert [core.memory_total_bytes for core in told.cores] == [96 * GIB // cores] * cores


def test_several_processes_on_a_core_are_added():
    told = report(cores=2)
    told["neuron_runtime_data"].append(copy.deepcopy(told["neuron_runtime_data"][0]))
    core = read(told).cores[0]
    assert (core.utilisation, core.memory_used_bytes) == (1.0, 2 * (9 * GIB + 3 * GIB // 8))


LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
JSON = st.recursive(
    LEAF, lambda one: st.lists(one, max_size=2) | st.dictionaries(st.text(max_size=4), one, max_size=2)
)


def _places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inside for place in _places(one, (*path, key)))]


def _inside(value: object, key: Any) -> Any:
    """What was there, unless something else has taken its place."""
    try:
        return value[key]  # type: ignore[index]
    except (IndexError, KeyError, TypeError):
        return {}


FORMS = {"today": report(cores=2), "inf2": _real_inf2(), "beta": _beta()}
PLACES = {name: _places(form) for name, form in FORMS.items()}


@given(data=st.data(), form=st.sampled_from(sorted(FORMS)))
@settings(deadline=None, max_examples=300)
def test_no_report_harms_the_reader(data: st.DataObject, form: str):
    """Any value at any two places, or nothing there: a sample comes out that JSON can hold."""
    told: Any = copy.deepcopy(FORMS[form])
    for _ in range(2):
        *above, last = data.draw(st.sampled_from([place for place in PLACES[form] if place]))
        value = data.draw(JSON)
        at = told
        for key in above:
            at = _inside(at, key)
        if isinstance(at, dict) and data.draw(st.booleans()):
            at.pop(last, None)
        elif isinstance(at, dict):
            at[last] = value
    counts = NeuronCounts()
    found = counts.read(told)
    assert all(core.utilisation is None or 0 <= core.utilisation <= 1 for core in found.cores)
    sample = Sample(
        1.0, 5.0, "neuron-monitor", "one", found.host, found.cores, found.devices, found.processes
    )
    assert Sample.from_json(json.loads(json.dumps(sample.as_json(), allow_nan=False))).cores is not None


@given(told=JSON)
@settings(deadline=None, max_examples=100)
def test_nor_does_any_other_json(told: object):
    assert read(told).cores == () or isinstance(told, dict)


def test_the_recorded_stream_is_that_of_two_machines_with_64_cores(tmp_path):
    written = recorded_stream(tmp_path)
    found = read_samples(tmp_path)
    assert sorted(found) == sorted(NODES)
    assert sum(len(samples[-1].cores) for samples in found.values()) == 64
    assert [one.time for one in found[NODES[0]]] == [one.time for one in written[NODES[0]]]
    assert 0.75 < found[NODES[1]][-1].utilisation < 0.97
    assert found[NODES[0]][-1].devices[3].ecc_corrected == 1
