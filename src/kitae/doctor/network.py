"""What leads to other machines: the port of Neuron's runtimes, this machine's name, EFA."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import psutil

from kitae.catalog.neuron import machine_of
from kitae.doctor.finding import Finding, Patient
from kitae.doctor.tools import EFA_PROGRAMS, ask
from kitae.launch.environment import ROOT_PORT, has_efa

RESERVED = Path("/proc/sys/net/ipv4/ip_local_reserved_ports")
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
HOSTS = Path("/etc/hosts")
INFINIBAND = Path("/sys/class/infiniband")


def ports(patient: Patient) -> Iterator[Finding]:
    """Whether the port where Neuron's runtimes meet is kept free."""
    one = patient.target
    if one is None or not one.neuron:
        return
    try:
        kept = in_ranges(ROOT_PORT, RESERVED.read_text(encoding="utf-8"))
        low, high = map(int, EPHEMERAL.read_text(encoding="utf-8").split())
    except (OSError, ValueError):
        yield Finding("note", "reserved ports", "the system does not say which ports it keeps free")
        return
    if kept or not low <= ROOT_PORT <= high:
        yield Finding("ok", "reserved ports", f"{ROOT_PORT} is given to no other connection")
    else:
        text = f"{ROOT_PORT}, where the runtimes of several machines meet, may be given to any connection"
        out = f"sudo sysctl -w net.ipv4.ip_local_reserved_ports={ROOT_PORT}"
        yield Finding("note", "reserved ports", f"{text}: {out}", "training-troubleshooting.rst")


def in_ranges(port: int, text: str) -> bool:
    """Whether a port is in a list like `44000,48000-48999`."""
    for part in filter(None, text.strip().split(",")):
        low, _, high = part.partition("-")
        if int(low) <= port <= int(high or low):
            return True
    return False


def names(patient: Patient) -> Iterator[Finding]:
    """Whether this machine's name, which others are told, leads to an address of it."""
    one = patient.target
    if one is None or not one.neuron:
        return
    host = socket.gethostname()
    try:
        found = addresses_of(host, HOSTS.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        found = []
    own = {address.address for all_of in psutil.net_if_addrs().values() for address in all_of}
    loops = [address for address in found if address.startswith("127.") or address == "::1"]
    strange = [address for address in found if address not in own and address not in loops]
    if strange:
        text = f"{HOSTS} has {host} as {', '.join(strange)}, which no interface here has: take the line out"
        yield Finding(one.missing, "host name", text, "aws-neuron-parallelcluster-samples install_neuron.sh")
    elif loops:
        text = (
            f"{HOSTS} says that {host} is {', '.join(loops)}: others that are told this name meet themselves"
        )
        yield Finding("note", "host name", f"{text}; kitae tells them addresses, other programs the name")
    else:
        yield Finding("ok", "host name", f"{host} is not in {HOSTS} with an address of another machine")


def addresses_of(host: str, text: str) -> list[str]:
    """Addresses that a hosts file has for a name."""
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    return [parts[0] for parts in lines if len(parts) > 1 and host in parts[1:]]


def efa(patient: Patient) -> Iterator[Finding]:
    """Whether the interfaces are there that tensors go over between machines."""
    one = patient.target
    if one is None or not has_efa(one.name):
        return
    machine = machine_of(one.name)
    wanted = machine.efa_interfaces if machine is not None else 1
    found = sorted(place.name for place in INFINIBAND.glob("*"))
    source = machine.source if machine is not None else ""
    if not found:
        text = (
            f"not found: no device in {INFINIBAND}{one.elsewhere}; several machines would hang: launch them "
        )
        yield Finding(one.missing, "efa", f"{text}with EFA enabled, and install the EFA driver", source)
        return
    if len(found) < wanted:
        text = (
            f"{len(found)} of {wanted} interfaces ({', '.join(found)}); launch the machine with all of them"
        )
        yield Finding(one.missing, "efa", text, source)
        return
    answer = ask("fi_info", "-p", "efa", "-t", "FI_EP_RDM", folders=[EFA_PROGRAMS])
    if answer.text is None:
        yield Finding(
            "note", "efa", f"{len(found)} interfaces; {answer.trouble}: is libfabric installed?", source
        )
    else:
        yield Finding("ok", "efa", f"{len(found)} interfaces, and libfabric has its provider", source)
