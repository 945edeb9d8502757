"""What the host allows: open files, pinned memory, room, a clock that is kept."""

from __future__ import annotations

import re
import resource
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from kitae.backend.stack import compile_cache
from kitae.doctor.finding import Finding, Level, Patient
from kitae.doctor.target import Target
from kitae.doctor.tools import ask
from kitae.launch.environment import (
    OPEN_FILES,
    Surroundings,
    has_efa,
    settings_of,
    shared_file_system,
)

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
