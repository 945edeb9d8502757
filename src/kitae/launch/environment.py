"""Variables that transports, runtimes and compilers of a machine need, by its type. What is set stays.

Sources: NeuronX Distributed's Llama and BERT-Large example scripts (EFA, runtime and allocator), the Neuron
troubleshooting pages (a compile cache of its own for each host: locks on a network file system break it; the
port of the runtime's own meeting, 48620), the guide of EFA for accelerated instances.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT_PORT = 48620
"""Where Neuron's runtimes meet; to be kept free with sysctl net.ipv4.ip_local_reserved_ports."""
COMPILE_CACHE = Path("/var/tmp/kitae-compile-cache")
"""On the machine's own disk."""
_PRODUCT = Path("/sys/devices/virtual/dmi/id/product_name")


@dataclass(frozen=True)
class Surroundings:
    """What variables depend on."""

    master: str
    """Address of the first machine."""
    interface: str
    """That leads there; empty where it is not known."""
    host: str


Variables = Mapping[str, str]
_EFA = {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1", "FI_EFA_FORK_SAFE": "1"}
_NEURON = {
    "NEURON_RT_EXEC_TIMEOUT": "600",
    "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS": "3",
    "NEURON_RT_STOCHASTIC_ROUNDING_SEED": "0",
    "MALLOC_ARENA_MAX": "64",
}


def _plain(at: Surroundings) -> Variables:
    return {"GLOO_SOCKET_IFNAME": at.interface} if at.interface else {}


def _neuron(at: Surroundings) -> Variables:
    sockets = {"CCOM_SOCKET_IFNAME": at.interface} if at.interface else {}
    return {
        **_plain(at),
        **sockets,
        **_NEURON,
        "NEURON_RT_ROOT_COMM_ID": f"{at.master}:{ROOT_PORT}",
        "NEURON_COMPILE_CACHE_URL": str(COMPILE_CACHE / at.host),
    }


def _neuron_efa(at: Surroundings) -> Variables:
    return {**_neuron(at), **_EFA}


def _nvidia(at: Surroundings) -> Variables:
    sockets = {"NCCL_SOCKET_IFNAME": at.interface} if at.interface else {}
    return {**_plain(at), **sockets}


def _nvidia_efa(at: Surroundings) -> Variables:
    return {**_nvidia(at), **_EFA}


KINDS: dict[str, Callable[[Surroundings], Variables]] = {
    "trn1.2xlarge": _neuron,
    "trn1.": _neuron_efa,
    "trn1n.": _neuron_efa,
    "trn2.": _neuron_efa,
    "trn2u.": _neuron_efa,
    "trn3.": _neuron_efa,
    "trn3u.": _neuron_efa,
    "p4d.": _nvidia_efa,
    "p4de.": _nvidia_efa,
    "p5.": _nvidia_efa,
    "p5e.": _nvidia_efa,
    "p5en.": _nvidia_efa,
    "g5.": _nvidia,
    "g6.": _nvidia,
    "": _plain,
}
"""By what an instance type begins with; the first that fits."""


def environment_of(instance: str, at: Surroundings) -> Variables:
    """The variables of a machine of this type; those of any machine for a type that is not known."""
    return next(make(at) for prefix, make in KINDS.items() if instance.startswith(prefix))


def instance_type() -> str:
    """The type of this machine, as its firmware says; empty where it says none."""
    try:
        return _PRODUCT.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def here(master: str, interface: str) -> Surroundings:
    """Of this machine."""
    return Surroundings(master, interface, socket.gethostname())
