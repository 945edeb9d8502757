"""Variables that transports, runtimes and compilers of a machine need, by its stack and type.

The rows, with their reasons and sources, are catalog/environment.toml. What is set already stays, but for
what must not be set at all.
"""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kitae.backend.stack import compile_cache, instance_type, stack_here
from kitae.catalog.environment import refused, variables
from kitae.catalog.instances import instances
from kitae.catalog.neuron import machine_of
from kitae.errors import RecipeError
from kitae.storage.mounts import MOUNTS, mount_of, shared_mount

ROOT_PORT = 48620
"""Where Neuron's runtimes meet; to be kept free with sysctl net.ipv4.ip_local_reserved_ports."""
OPEN_FILES = 65535
"""So many files and sockets a rank's process may need open, on many machines."""
_MOUNTS = MOUNTS
_WITHOUT_EFA = ("trn1.2xlarge", "trn2.3xlarge", "g5.xlarge", "g6.xlarge")
_WITH_EFA = ("trn1.", "trn1n.", "trn2.", "trn2u.", "trn3.", "trn3u.", "p4d.", "p4de.", "p5.", "p5e.", "p5en.")


@dataclass(frozen=True)
class Surroundings:
    """What variables depend on, beside stack and type."""

    master: str
    """Address of the first machine."""
    interface: str
    """That leads there; empty where it is not known."""
    host: str
    several: bool = True
    """Whether other machines take part."""
    precision: str = ""
    """Of the recipe; empty where it is not known."""


@dataclass(frozen=True)
class Setting:
    """A variable for a rank, and where it is from."""

    name: str
    value: str
    why: str
    source: str


def has_efa(instance: str) -> bool:
    """Whether a type is known to have EFA."""
    return instance.startswith(_WITH_EFA) and not instance.startswith(_WITHOUT_EFA)


def settings_of(stack: str, instance: str, at: Surroundings) -> list[Setting]:
    """What a rank needs on a machine of this type, each variable once."""
    holds = {"interface": bool(at.interface), "efa": has_efa(instance), "several": at.several}
    conditions = {name for name, met in holds.items() if met}
    found: dict[str, Setting] = {}
    for row in variables():
        if row.name not in found and row.holds(stack, conditions, at.precision):
            value = row.value.format(master=at.master, interface=at.interface, host=at.host)
            found[row.name] = Setting(row.name, value, row.why, row.source)
    return list(found.values())


def refusals(stack: str, precision: str, environ: Mapping[str, str]) -> list[Setting]:
    """What is set and must not be, each with the way out; the compile cache where it must not lie, too."""
    found = [
        Setting(row.name, environ[row.name], row.why, row.source)
        for row in refused()
        if row.holds(stack, set(), precision) and _is_set(environ.get(row.name), row.value)
    ]
    cache = compile_cache(environ) if stack == "trn1-xla" else None
    reason = None if cache is None else unfit_cache(cache, socket.gethostname())
    if cache is not None and reason is not None:
        found.append(Setting("compile cache", cache, reason, "training-troubleshooting.rst"))
    return found


def _is_set(value: str | None, unwanted: str) -> bool:
    if value is None:
        return False
    return value == unwanted if unwanted else value.strip().lower() not in ("", "0", "false")


def unfit_cache(cache: str, host: str) -> str | None:
    """Why the XLA compiler's cache must not lie there, or None: several machines would share it."""
    if cache.startswith("s3://"):
        return None
    path = Path(cache).expanduser()
    mount = shared_mount(path, host, lambda place: mount_of(place, _MOUNTS))
    if mount is None:
        return None
    return (
        f"it lies on a file system that machines share ({mount.kind}), where its locks break; unset it, or "
        f"end the path with the machine's name ({host})"
    )


def shared_file_system(path: Path, mounts: Path | None = None) -> str | None:
    """Type of the file system that a path lies on, where several machines may see it; else None."""
    mount = mount_of(path, mounts or _MOUNTS)
    return mount.kind if mount.is_network else None


def apply(backend: str, at: Surroundings, environ: MutableMapping[str, str] | None = None) -> list[Setting]:
    """Set what ranks here need and is not set; what that was. `RecipeError` for what must not be set."""
    environ = os.environ if environ is None else environ
    instance, stack = instance_type(), stack_here(backend)
    wrong = refusals(stack, at.precision, environ)
    if wrong:
        raise RecipeError("; ".join(f"{one.name}={one.value} must not be set: {one.why}" for one in wrong))
    chosen = [one for one in settings_of(stack, instance, at) if one.name not in environ]
    environ.update({one.name: one.value for one in chosen})
    return chosen


def check_ranks(backend: str, ranks: int, several: bool) -> None:
    """Raise `RecipeError` for a number of ranks on this machine that its collectives do not take.

    Of several machines each has to use all of its cores.
    """
    name = instance_type()
    machine, known = machine_of(name), instances().get(name)
    if stack_here(backend) != "trn1-xla" or machine is None or known is None:
        return
    allowed = (known.devices,) if several else machine.workers
    if ranks not in allowed:
        raise RecipeError(
            f"{ranks} processes on a {name} cannot train together: its collectives take "
            f"{', '.join(map(str, allowed))}{' on each of several machines' if several else ''}; change "
            "parallel.tensor_parallel_size, parallel.data_parallel_size or target.nodes"
        )


@contextmanager
def surrounded(backend: str, precision: str) -> Iterator[None]:
    """Set what ranks of one machine alone need, which they inherit, for as long as this lasts."""
    chosen = apply(backend, here("127.0.0.1", "", several=False, precision=precision))
    if chosen:
        raise_file_limit()
    try:
        yield
    finally:
        for one in chosen:
            os.environ.pop(one.name, None)


def raise_file_limit() -> None:
    """Allow as many open files as the system lets this process have: ranks hold a socket for each other."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def here(master: str, interface: str, *, several: bool = True, precision: str = "") -> Surroundings:
    """Of this machine."""
    return Surroundings(master, interface, socket.gethostname(), several, precision)
