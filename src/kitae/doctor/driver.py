"""Neuron's driver, its devices, and who holds their cores. Nothing is ended or reloaded here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from kitae.doctor import neuron_devices
from kitae.doctor.finding import Finding, Patient
from kitae.doctor.neuron_devices import Device, Holder, parse_neuron_ls
from kitae.doctor.target import Target
from kitae.doctor.tools import NEURON_PROGRAMS, ask

_SHOWN = 120
"""Characters of a command."""


def driver(patient: Patient) -> Iterator[Finding]:
    """Whether it is there and loaded."""
    one = patient.target
    if one is None or not one.neuron:
        return
    version = neuron_devices.driver_version()
    if version is None:
        text = f"not found: the kernel module neuron is not loaded{one.elsewhere}"
        out = "install aws-neuronx-dkms, or load it: sudo modprobe neuron"
        yield Finding(one.missing, "neuron driver", f"{text}; {out}")
    else:
        chip = neuron_devices.architecture()
        yield Finding("ok", "neuron driver", f"{version} is loaded{f', and says {chip}' if chip else ''}")


def devices(patient: Patient) -> Iterator[Finding]:
    """Whether all devices of the machine type are there."""
    one = patient.target
    if one is None or not one.neuron:
        return
    files = neuron_devices.device_files()
    wanted = 0 if one.instance is None else one.instance.chips
    if not files:
        text = f"not found: there is no {neuron_devices.DEVICES}/neuron0{one.elsewhere}"
        yield Finding(one.missing, "neuron devices", text)
    elif one.here and wanted and len(files) != wanted:
        gone = sorted(set(range(wanted)) - set(files))
        which = f" (missing: {', '.join(map(str, gone))})" if gone else ""
        text = f"{len(files)} of {wanted} devices are there{which}; restart the machine, or replace it"
        yield Finding("fail", "neuron devices", text)
    else:
        yield Finding("ok", "neuron devices", f"{len(files)} ({files[0]} to {files[-1]})")


def cores(patient: Patient) -> Iterator[Finding]:
    """How many cores there are, and who holds some."""
    one = patient.target
    if one is None or not one.neuron:
        return
    answer = ask("neuron-ls", "-j", folders=[NEURON_PROGRAMS])
    if answer.text is None:
        known = neuron_devices.sysfs_devices()
        counted = f"; the driver itself shows {_cores(known)}" if known else ""
        yield Finding(
            one.missing, "neuron-ls", f"{answer.trouble}{one.elsewhere}: who holds cores is unknown{counted}"
        )
        return
    try:
        found = parse_neuron_ls(answer.text)
    except ValueError as error:
        yield Finding("note", "neuron-ls", f"its answer cannot be read ({error}): who holds cores is unknown")
        return
    yield _counted(one, found)
    yield from _held(found)


def _counted(one: Target, found: Sequence[Device]) -> Finding:
    ranks = [device.ranks for device in found]
    wanted = 0 if one.instance is None else one.instance.devices
    total = sum(known for known in ranks if known is not None)
    if one.here and wanted and None not in ranks and total != wanted:
        text = f"{_cores(found)}, room for {total} ranks, where a {one.name} has {wanted}"
        return Finding("fail", "cores", f"{text}; look at NEURON_LOGICAL_NC_CONFIG and at the devices above")
    return Finding("ok", "cores", _cores(found))


def _cores(found: Sequence[Device]) -> str:
    """How many, in words."""
    if any(device.cores is None for device in found):
        return f"{len(found)} devices, whose cores are not told"
    physical = sum(device.cores or 0 for device in found)
    logical = sum(device.ranks or 0 for device in found)
    as_one = "" if logical == physical else f", {logical} logical ones"
    return f"{len(found)} devices with {physical} cores{as_one}"


def _held(found: Sequence[Device]) -> Iterator[Finding]:
    """One line a process: a training cannot take cores that another runtime has."""
    places: dict[int, list[Device]] = defaultdict(list)
    holders: dict[int, Holder] = {}
    for device in found:
        for holder in device.holders:
            places[holder.pid].append(device)
            holders[holder.pid] = holder
    for pid, holder in holders.items():
        numbers = ", ".join(str(device.number) for device in places[pid])
        cores = [core for device in places[pid] for core in device.core_ids]
        which = f"device {numbers}" + (f" (cores {_runs(cores)})" if cores else "")
        command = holder.command[:_SHOWN] or "no command told"
        if holder.runtime == "":
            text = f"{which}: process {pid} ({command}) looks at it, and runs nothing"
            yield Finding("note", "cores held", text)
        else:
            runtime = f", runtime {holder.runtime}" if holder.runtime else ""
            text = f"{which}: held by process {pid} ({command}){runtime}"
            out = f"wait for it, or end it if nobody needs it any more: kill {pid}; kitae does not"
            yield Finding("fail", "cores held", f"{text}; {out}")


def _runs(numbers: Sequence[int]) -> str:
    """0-3, 8 of 0, 1, 2, 3, 8."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
