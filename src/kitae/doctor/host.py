"""What the host allows: open files, pinned memory, room, a clock that is kept, ports, names, EFA."""

from __future__ import annotations

import re
import resource
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil

from kitae.catalog.neuron import machine_of
from kitae.doctor.finding import Finding, Level, Patient
from kitae.doctor.target import Target
from kitae.doctor.tools import EFA_PROGRAMS, ask
from kitae.launch.environment import (
    OPEN_FILES,
    ROOT_PORT,
    Surroundings,
    compile_cache,
    has_efa,
    settings_of,
    shared_file_system,
)

RESERVED = Path("/proc/sys/net/ipv4/ip_local_reserved_ports")
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
HOSTS = Path("/etc/hosts")
INFINIBAND = Path("/sys/class/infiniband")
FREE_BYTES = {"compile cache": 20 * 10**9, "runs": 20 * 10**9}
"""Less room than this is said: graphs of a large model take gigabytes, and so does a checkpoint."""
CLOCK_OFF_S = 0.5
_LIMITS = "in /etc/security/limits.conf, and in the unit of the scheduler's daemon"


def limits(patient: Patient) -> Iterator[Finding]:
    """Files and sockets that a process may open; memory that it may pin."""
    one = patient.target
    if one is None or not one.neuron:
        return
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _unlimited(files) or files >= OPEN_FILES:
        yield Finding("ok", "ulimit -n", f"up to {_shown(files)}; ranks get all of it")
    else:
        text = f"{files:,}, and many machines need {OPEN_FILES:,}: set nofile {_LIMITS}"
        yield Finding(one.missing, "ulimit -n", text, "training-troubleshooting.rst (Too many open files)")
    if not has_efa(one.name):
        return
    _, pinned = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if _unlimited(pinned):
        yield Finding("ok", "ulimit -l", "unlimited")
    else:
        text = f"{pinned // 1024:,} KiB, and EFA pins what it sends: set memlock unlimited {_LIMITS}"
        yield Finding(one.missing, "ulimit -l", text, "AWS's guide of EFA")


def _unlimited(value: int) -> bool:
    return value in (resource.RLIM_INFINITY, -1)


def _shown(value: int) -> str:
    return "any number" if _unlimited(value) else f"{value:,}"


def room(patient: Patient) -> Iterator[Finding]:
    """Free space where compiled graphs and runs go, and whether several machines see it."""
    one = patient.target
    if one is None:
        return
    places = {"runs": patient.runs.absolute()}
    cache = _cache_of(one)
    if cache is not None and "://" not in cache:
        places["compile cache"] = Path(cache).expanduser()
    for name, path in places.items():
        yield _room(name, path)


def _cache_of(one: Target) -> str | None:
    at = Surroundings("", "", socket.gethostname(), precision=one.precision)
    table = {setting.name: setting.value for setting in settings_of(one.stack, one.name, at)}
    if one.stack == "torchneuron":
        name = "TORCH_NEURONX_NEFF_CACHE_DIR"
        return one.environ.get(name, table[name])
    return compile_cache({**table, **one.environ}) if one.stack == "trn1-xla" else None


def _room(name: str, path: Path) -> Finding:
    place = path
    while not place.exists():
        place = place.parent
    free, shared = shutil.disk_usage(place).free, shared_file_system(path)
    text = f"{path}: {free / 1e9:.1f} GB free" + (
        f", on a file system that machines share ({shared})" if shared else ""
    )
    if free < FREE_BYTES[name]:
        return Finding(
            "note", name, f"{text}; below {FREE_BYTES[name] / 1e9:.0f} GB a large model may not fit"
        )
    return Finding("ok", name, text)


def clock(patient: Patient) -> Iterator[Finding]:
    """Whether something keeps this machine's clock; several machines are compared before they train."""
    if patient.target is None:
        return
    for program, words, read in (
        ("chronyc", ("tracking",), read_chrony),
        ("timedatectl", ("show", "-p", "NTPSynchronized", "--value"), read_timedatectl),
    ):
        answer = ask(program, *words)
        if answer.text is not None:
            level, text = read(answer.text)
            yield Finding(level, "clock", f"{text} ({program})")
            return
    text = "neither chronyc nor timedatectl answers: whether the clock is kept is unknown"
    yield Finding("note", "clock", f"{text}; certificates, and the order of logs, depend on it")


def read_chrony(text: str) -> tuple[Level, str]:
    """What `chronyc tracking` says."""
    offset = re.search(r"^System time\s*:\s*([\d.]+) seconds (fast|slow)", text, re.MULTILINE)
    leap = re.search(r"^Leap status\s*:\s*(.+)$", text, re.MULTILINE)
    if leap is not None and leap[1].strip() == "Not synchronised":
        return "note", "not synchronised: start chronyd, or let it reach 169.254.169.123"
    if offset is None:
        return "note", "its answer cannot be read"
    seconds = float(offset[1])
    if seconds > CLOCK_OFF_S:
        return "note", f"{seconds:.3f} s {offset[2]}: chronyc makestep sets it"
    return "ok", f"kept, {seconds * 1e3:.3f} ms {offset[2]}"


def read_timedatectl(text: str) -> tuple[Level, str]:
    """What `timedatectl show -p NTPSynchronized --value` says."""
    if text.strip() == "yes":
        return "ok", "kept"
    return "note", "not synchronised: timedatectl set-ntp true"


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
