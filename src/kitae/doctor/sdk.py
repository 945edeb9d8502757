"""The Neuron SDK that is installed: which of two products, which release, and whether it can train here."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from importlib import metadata

from kitae.backend.stack import neuron_package
from kitae.catalog.neuron import (
    TRAINING,
    Place,
    is_after,
    native_releases,
    place_of,
    release,
    support,
    torch_of,
)
from kitae.doctor.finding import Finding, Patient
from kitae.doctor.neuron_devices import driver_version
from kitae.doctor.target import Target
from kitae.doctor.tools import ask

_FROM_PIP = ("torch-neuronx", "neuronx-cc", "libneuronxla", "neuronx-distributed")
_FROM_SYSTEM = {
    "aws-neuronx-runtime-lib": "runtime-lib",
    "aws-neuronx-collectives": "collectives",
    "aws-neuronx-dkms": "dkms",
    "aws-neuronx-tools": "tools",
}
_QUERIES = (
    ("dpkg-query", "-W", "-f", "${Package} ${Version}\n", "aws-neuronx-*"),
    ("rpm", "-qa", "--qf", "%{NAME} %{VERSION}\n", "aws-neuronx-*"),
)
_WANTED = {"trn1-xla": "xla", "torchneuron": "native"}
_KINDS = {"xla": "the one for torch-xla", "native": "TorchNeuron"}


def package(patient: Patient) -> Iterator[Finding]:
    """Which product is installed as torch-neuronx."""
    one = patient.target
    if one is None or not one.neuron:
        return
    found = neuron_package()
    wanted = _WANTED[one.stack]
    signs = f" ({'; '.join(found.signs)})" if found.signs else ""
    if found.kind == "absent":
        text = f"not found{one.elsewhere}; {one.name} needs {_KINDS[wanted]}"
        yield Finding(one.missing, "torch-neuronx", text)
    elif found.kind == wanted:
        yield Finding("ok", "torch-neuronx", f"{found.version}: {_KINDS[wanted]}{signs}")
    elif found.kind == "unclear":
        text = f"{found.version}: neither clearly TorchNeuron nor clearly the one for torch-xla{signs}"
        yield Finding("note", "torch-neuronx", text)
    else:
        text = (
            f"{found.version} is {_KINDS[found.kind]}{signs}, and {one.name} needs {_KINDS[wanted]}; "
            "both have one name and cannot share an environment: make a new one"
        )
        yield Finding(one.missing, "torch-neuronx", text)


def release_of(patient: Patient) -> Iterator[Finding]:
    """Which releases the packages are of, and whether those train."""
    one = patient.target
    if one is None or not one.neuron:
        return
    found = installed()
    if not found:
        yield Finding(one.missing, "neuron sdk", f"no package of it is found{one.elsewhere}")
        return
    if one.stack == "torchneuron":
        yield from _native(one, found)
        return
    places = {name: place for name, version in found.items() if (place := place_of(name, version))}
    listed = ", ".join(f"{name} {version} ({places.get(name, '?')})" for name, version in found.items())
    yield Finding("ok", "neuron packages", f"{listed}; in brackets their release")
    yield from _judge(one, found, places)


def _judge(one: Target, found: Mapping[str, str], places: Mapping[str, Place]) -> Iterator[Finding]:
    limits, training = support(), {name: places[name] for name in TRAINING if name in places}
    late = [name for name, place in training.items() if is_after(place, limits.last)]
    if late:
        text = (
            f"{', '.join(f'{name} {found[name]}' for name in late)}: training through torch-xla, the only "
            f"way on Trn1, is not supported from release 2.30 on; install {limits.best}, with torch 2.9"
        )
        yield Finding(one.missing, "neuron sdk", text, f"{limits.source} ({limits.date})")
    elif any(is_after(place, limits.best) for place in training.values()):
        text = f"release {limits.last} is the last that trains on Trn1; {limits.best} is the better tried one"
        yield Finding("note", "neuron sdk", text, f"{limits.source} ({limits.date})")
    elif training:
        yield Finding("ok", "neuron sdk", f"release {', '.join(sorted({str(p) for p in training.values()}))}")
    yield from _mixed(places)
    yield from _fit(one, found, training)


def _mixed(places: Mapping[str, Place]) -> Iterator[Finding]:
    """Packages of different releases."""
    by_release: dict[str, list[str]] = {}
    for name, place in places.items():
        if place.at is not None:  # others are between two releases of the table
            by_release.setdefault(place.at, []).append(name)
    if len(by_release) > 1:
        listed = "; ".join(f"{', '.join(names)} of {which}" for which, names in by_release.items())
        text = f"packages of {len(by_release)} releases: {listed}; a newer driver is fine, else install one"
        yield Finding("note", "neuron sdk", text)


def _fit(one: Target, found: Mapping[str, str], training: Mapping[str, Place]) -> Iterator[Finding]:
    """Whether torch and Python are those that the packages were made for."""
    meant, here = torch_of(found.get("torch-neuronx", "")), _version("torch")
    if meant is not None and here is not None and not here.startswith(f"{meant}."):
        text = f"torch-neuronx {found['torch-neuronx']} is for torch {meant}, and {here} is installed"
        yield Finding(one.missing, "torch", f"{text}; pip install 'torch=={meant}.*'")
    names = {place.at for place in training.values() if place.at is not None}
    for name in sorted(names):
        oldest, newest = release(name).python
        version = platform.python_version()
        if not _between(oldest, version, newest):
            text = f"{version}: release {name} is made for {oldest} to {newest}"
            yield Finding("note", "python", text, "aws-neuron-sdk n2-manifest.json")


def _native(one: Target, found: Mapping[str, str]) -> Iterator[Finding]:
    """TorchNeuron and torch have to be of one number."""
    version, torch = found.get("torch-neuronx", ""), _version("torch") or ""
    known = next(
        (name for name, pins in native_releases().items() if any(version.startswith(pin) for pin in pins)),
        None,
    )
    yield Finding("ok", "neuron packages", ", ".join(f"{name} {found[name]}" for name in found))
    if version and version.split(".")[:2] != torch.split(".")[:2]:
        family = ".".join(torch.split(".")[:2])
        text = f"torch-neuronx {version} does not fit torch {torch}; pip install 'torch-neuronx=={family}.*'"
        yield Finding(one.missing, "neuron sdk", text)
    elif version and known is None:
        text = f"torch-neuronx {version} is in no release that kitae knows ({', '.join(native_releases())})"
        yield Finding("note", "neuron sdk", text)
    elif version:
        yield Finding("ok", "neuron sdk", f"release {known} (public beta)")


def installed() -> dict[str, str]:
    """Version by package, of what is found: pip's, the system's, and the driver that is loaded."""
    from_pip = {name: version for name in _FROM_PIP if (version := _version(name)) is not None}
    driver = driver_version()
    loaded = {} if driver is None else {"dkms": driver}
    return {**from_pip, **_system_packages(), **loaded}


def _system_packages() -> dict[str, str]:
    for program, *words in _QUERIES:
        text = ask(program, *words).text
        found = parse_packages(text or "")
        if found:
            return found
    return {}


def parse_packages(text: str) -> dict[str, str]:
    """What dpkg-query or rpm list, by the names of the table of releases."""
    pairs = (line.split() for line in text.splitlines())
    return {_FROM_SYSTEM[pair[0]]: pair[1] for pair in pairs if len(pair) > 1 and pair[0] in _FROM_SYSTEM}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _between(oldest: str, version: str, newest: str) -> bool:
    def numbers(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in text.split(".")[:2])

    return numbers(oldest) <= numbers(version) <= numbers(newest)
