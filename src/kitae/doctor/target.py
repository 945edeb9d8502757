"""The machine type that a training is meant for: what it has, and every variable that its ranks get."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kitae.backend.stack import NEURON_TYPES, instance_type, stack_here, stack_of
from kitae.catalog.instances import Instance, instance, instances
from kitae.catalog.neuron import machine_of
from kitae.doctor.finding import Finding, Level, Patient
from kitae.doctor.neuron_devices import device_files
from kitae.launch.environment import Surroundings, refusals, settings_of

HERE = "here"
STACKS = {"cpu": "cpu", "cuda": "cuda"}
"""Targets that are no machine type."""
NEURON_STACKS = ("trn1-xla", "torchneuron")
_NAMES = {
    "trn1-xla": "torch-xla and the Neuron SDK",
    "torchneuron": "TorchNeuron",
    "cuda": "CUDA",
    "xla-cpu": "torch-xla on a processor",
    "cpu": "the processor",
}


@dataclass(frozen=True)
class Target:
    """What is trained on."""

    name: str
    stack: str
    precision: str
    instance: Instance | None = None
    """None where the catalogue does not have it."""
    here: bool = True
    """Whether it is this machine."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @property
    def neuron(self) -> bool:
        """Whether it has Neuron devices."""
        return self.stack in NEURON_STACKS

    @property
    def missing(self) -> Level:
        """How bad it is that something of it is not found here."""
        return "fail" if self.here else "note"

    @property
    def elsewhere(self) -> str:
        """To be added to what is not found."""
        return "" if self.here else f" (this machine is no {self.name})"


def target_of(name: str, precision: str) -> Target:
    """The target called `name`: a machine type of the catalogue, `cpu`, `cuda`, or `here`.

    Raises `RecipeError` with the nearest names for another one.
    """
    firmware = instance_type()
    if name == HERE:
        return _here(firmware, precision)
    if name in STACKS:
        return Target(name, STACKS[name], precision)
    found = instance(name)
    here = firmware == name or (not firmware.startswith(NEURON_TYPES) and _has_chips_of(found))
    return Target(name, stack_of(found.backend, name), precision, found, here)


def _here(firmware: str, precision: str) -> Target:
    from kitae.backend.table import default_name

    known = instances().get(firmware)
    backend = default_name() if known is None else known.backend
    stack = stack_here(backend) if known is None else stack_of(backend, firmware)
    return Target(firmware or "this machine", stack, precision, known)


def _has_chips_of(found: Instance) -> bool:
    """Whether a machine whose firmware does not say its type (a container) shows devices of this one."""
    return found.backend in ("xla", "neuron") and bool(device_files())


def target(patient: Patient) -> Iterator[Finding]:
    """What the machine type has."""
    one = patient.target
    if one is None:
        return
    parts = [f"{one.name}: {_NAMES[one.stack]}"]
    machine = machine_of(one.name)
    source = "" if one.instance is None else f"{one.instance.source} ({one.instance.date})"
    if one.instance is not None and one.instance.chip is not None:
        found = one.instance
        parts += [
            f"{found.chips} chips with {found.devices} cores, one rank each",
            f"{found.host_gib:g} GiB of memory, {found.network_gbps:g} Gbit/s",
        ]
    if machine is not None:
        allowed = ", ".join(map(str, machine.workers[:-1]))
        parts.append(f"{allowed} or {machine.workers[-1]} ranks can train together on one")
    if one.neuron:
        parts.append("never run on such a chip by kitae's authors")
    yield Finding("ok", "target", "; ".join(parts), source)
    if not one.here:
        text = f"this machine is no {one.name}: what is said of it below is worth knowing, and not in the way"
        yield Finding("note", "target", text)


def ranks(patient: Patient) -> Iterator[Finding]:
    """Whether as many processes as the recipe has can train together on the machine."""
    one, count = patient.target, patient.ranks
    if one is None or count is None or one.instance is None or not one.instance.devices:
        return
    machine, cores = machine_of(one.name), one.instance.devices
    allowed = machine.workers if machine is not None else tuple(range(1, cores + 1))
    source = machine.source if machine is not None else ""
    if count not in allowed:
        text = f"{count} on each machine, where {', '.join(map(str, allowed))} can train together"
        yield Finding("fail", "ranks", f"{text}: change parallel's sizes or target.nodes", source)
    elif count < cores:
        yield Finding("note", "ranks", f"{count} on each machine: {cores - count} of {cores} cores are idle")
    else:
        yield Finding("ok", "ranks", f"{count} on each machine, all of its cores", source)


def variables(patient: Patient) -> Iterator[Finding]:
    """What each rank gets, and why; where the user's own setting is kept instead; what is refused."""
    one = patient.target
    if one is None:
        return
    host = socket.gethostname() if one.here else "<machine>"
    at = Surroundings("<first machine>", "<interface>", host, True, one.precision)
    for setting in settings_of(one.stack, one.name, at):
        mine = one.environ.get(setting.name)
        if mine is None or mine == setting.value:
            set_here = " (set here, too)" if mine is not None else ""
            text = f"{setting.value}{set_here}: {setting.why}"
            yield Finding("ok", setting.name, text, setting.source)
        else:
            text = f"yours is kept: {mine}; kitae would set {setting.value}: {setting.why}"
            yield Finding("note", setting.name, text, setting.source)
    for refused in refusals(one.stack, one.precision, one.environ):
        text = f"{refused.value} must not be set, and nothing is trained: {refused.why}"
        yield Finding("fail", refused.name, text, refused.source)
