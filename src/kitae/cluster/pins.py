"""Packages of a Neuron SDK that nodes get, out of `catalog/neuron.toml`."""

from __future__ import annotations

from dataclasses import dataclass

from kitae.catalog.reading import read_table

_SYSTEM = {
    "dkms": "aws-neuronx-dkms",
    "runtime-lib": "aws-neuronx-runtime-lib",
    "collectives": "aws-neuronx-collectives",
    "tools": "aws-neuronx-tools",
}
"""Debian packages by their names in the table."""
_TABLE = read_table("neuron")
NATIVE: tuple[str, ...] = tuple(_TABLE["native"]["system"])
"""SDKs with native PyTorch, for Trn2 and Trn3."""
KNOWN: tuple[str, ...] = (*(row["name"] for row in _TABLE["releases"] if row["torch"]), *NATIVE)
"""SDKs that train."""
LAST_OF_TRN1: str = _TABLE["support"]["last"]


@dataclass(frozen=True)
class Pins:
    """Exact versions for one SDK."""

    system: tuple[str, ...]
    """`package=version`, as apt takes them."""
    python: tuple[str, ...]
    """`package==version`, as pip takes them."""


def pins_of(sdk: str) -> Pins:
    """What an SDK of `KNOWN` consists of."""
    if sdk in NATIVE:
        newest = _TABLE["native"]["releases"][sdk][-1]
        return Pins(_system(_TABLE["native"]["system"][sdk]), (f"torch-neuronx=={newest}",))
    row = next(row for row in _TABLE["releases"] if row["name"] == sdk)
    packages, torch = row["packages"], row["torch"][-1]
    python = (
        f"torch=={torch}.*",
        f"torch-neuronx=={torch}.0.{packages['torch-neuronx']}",
        f"neuronx-cc=={packages['neuronx-cc']}",
        f"libneuronxla=={packages['libneuronxla']}",
    )
    return Pins(_system(packages), python)


def _system(packages: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"{debian}={packages[name]}*" for name, debian in _SYSTEM.items())
