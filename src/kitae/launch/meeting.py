"""Where machines of one job meet: an address of the first one, and a port that is free there.

The first machine opens a store at the first free port from the one that follows from the job's number on, so
that jobs which begin in the same second on the same machines look in different places, and writes it into the
attempt's folder; the others wait for that file. torch's agent, in the same process, then uses the very store.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from kitae.errors import TrainingError
from kitae.launch.agent import MEETING_S
from kitae.storage.files import replace_file

FIRST_PORT, PORTS = 20_000, 12_000
"""Below the ports that systems hand out by themselves."""
_TRIES = 64
_LOOK_S = 0.1
_FILE = "meeting.json"


@dataclass(frozen=True)
class Meeting:
    """Where to meet, and the interface that leads there."""

    endpoint: str
    """`address:port`."""
    interface: str
    """Of this machine; empty where it cannot be told."""
    store: Any = None
    """Holds the port open, on the first machine."""


def meet(
    folder: Path, job: int, node: int, addresses: Sequence[str], now: Callable[[], float] = time.monotonic
) -> Meeting:
    """Agree with the other machines; `addresses` are theirs, in order, this one has number `node`.

    Raises `TrainingError` when the first address is one that the others cannot reach, when no port is free,
    or when the first machine says nothing for too long.
    """
    refuse_loopback(addresses)
    path, store = folder / _FILE, None
    if node == 0:
        store = open_store(addresses[0], job, len(addresses))
        replace_file(path, json.dumps({"endpoint": f"{addresses[0]}:{store.port}"}).encode())
    limit = now() + MEETING_S
    while not path.is_file():
        if now() > limit:
            raise TrainingError(
                f"the first node ({addresses[0]}) has not begun after {MEETING_S} s: {path} is not there; "
                "does it see the same file system?"
            )
        time.sleep(_LOOK_S)
    endpoint: str = json.loads(path.read_text(encoding="utf-8"))["endpoint"]
    return Meeting(endpoint, interface_towards(addresses[0], own=addresses[node]), store)


def refuse_loopback(addresses: Sequence[str]) -> None:
    """Raise `TrainingError` when only the first machine could reach its own address."""
    inner = [ipaddress.ip_address(one).is_loopback for one in addresses]
    if inner[0] and not all(inner):
        raise TrainingError(
            f"the first node's address is {addresses[0]}, which the others cannot reach; mend its name in "
            "/etc/hosts or its NodeAddr in slurm.conf"
        )


def open_store(address: str, job: int, machines: int) -> Any:
    """A store at the first free port from the one that belongs to the job on, for as many machines."""
    from torch.distributed import DistNetworkError, TCPStore  # type: ignore[attr-defined]

    for shift in range(_TRIES):
        port = FIRST_PORT + (job * _TRIES + shift) % PORTS
        with suppress(DistNetworkError):
            # Shared: who opens a store at this port in this process gets this one.
            return TCPStore(address, port, machines, True, multi_tenant=True, wait_for_workers=False)
    raise TrainingError(f"none of {_TRIES} ports of {address} is free; end what holds them")


def address_of(name: str) -> str:
    """The address that a machine's name stands for. Raises `TrainingError`."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise TrainingError(f"{name}: its address cannot be found ({error.strerror or error})") from error
    return str(min(found, key=lambda one: one[0] != socket.AF_INET)[4][0])


def interface_towards(address: str, *, own: str) -> str:
    """The interface through which this machine, whose address is `own`, reaches `address`."""
    with socket.socket(_family(address), socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))  # sends nothing, but has to choose a way
            own = str(probe.getsockname()[0])
        except OSError:
            pass
    return interface_of(own)


def interface_of(own: str) -> str:
    """The interface that has an address, or whose network it belongs to; empty where there is none."""
    wanted = ipaddress.ip_address(own)
    networks: list[tuple[int, str]] = []
    for name, found in psutil.net_if_addrs().items():
        for one in found:
            if one.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            address = one.address.partition("%")[0]
            if ipaddress.ip_address(address) == wanted:
                return name
            if one.family == socket.AF_INET and one.netmask:
                network = ipaddress.ip_network(f"{address}/{one.netmask}", strict=False)
                networks += [(network.prefixlen, name)] if wanted in network else []
    return max(networks)[1] if networks else ""


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
