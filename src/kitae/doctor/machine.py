"""Python, the packages that kitae needs or can use, the backend, the disk."""

from __future__ import annotations

import platform
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib import metadata

import psutil
from packaging.requirements import Requirement

from kitae.doctor.finding import Finding, Patient

OLDEST_PYTHON = (3, 10)
LITTLE_DISK_BYTES = 5 * 10**9
"""Less room than this for the cache is said."""


def python(patient: Patient) -> Iterator[Finding]:
    """The version of Python."""
    version = platform.python_version()
    if sys.version_info >= OLDEST_PYTHON:
        yield Finding("ok", "python", version)
    else:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        yield Finding("fail", "python", f"{version}; kitae needs {oldest} or newer")


def packages(patient: Patient) -> Iterator[Finding]:
    """Packages that kitae cannot do without, in versions that it was made for."""
    needed = _requirements()[""]
    if not needed:
        yield Finding(
            "note", "packages", "kitae runs from its source: versions of packages are not looked at"
        )
    for requirement in needed:
        found = _version(requirement.name)
        wanted = f"{requirement.name}{requirement.specifier}"
        if found is None:
            yield Finding("fail", requirement.name, f"is not installed; pip install '{wanted}'")
        elif not requirement.specifier.contains(found, prereleases=True):
            yield Finding("note", requirement.name, f"{found}, and kitae is made for {wanted}")
        elif requirement.name == "torch":  # the others are named when something is wrong with them
            yield Finding("ok", "torch", found)


def extras(patient: Patient) -> Iterator[Finding]:
    """Packages that some recipes need."""
    for extra, requirements in _requirements().items():
        if extra in ("", "dev"):
            continue
        found = {one.name: _version(one.name) for one in requirements}
        missing = [name for name, version in found.items() if version is None]
        if missing:
            what = f"{', '.join(missing)} not installed; pip install 'kitae[{extra}]' where it is needed"
            yield Finding("note", f"extra {extra}", what)
        else:
            yield Finding("ok", f"extra {extra}", ", ".join(f"{n} {v}" for n, v in found.items()))


def backend(patient: Patient) -> Iterator[Finding]:
    """What computes here."""
    import torch

    from kitae.backend.table import chosen

    here = chosen()  # the class: a device that is taken is one that a training cannot have
    parts = [
        f"{here.name}, {here.devices()} device{'s' * (here.devices() != 1)}",
        f"{torch.get_num_threads()} threads",
        f"{psutil.virtual_memory().total / 1e9:.1f} GB of memory",
    ]
    yield Finding("ok", "backend", "; ".join(parts))


def disk(patient: Patient) -> Iterator[Finding]:
    """Room for prepared text and imported models."""
    place = patient.cache
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    text = f"{patient.cache}: {free / 1e9:.1f} GB free"
    if free < LITTLE_DISK_BYTES:
        yield Finding("note", "cache", f"{text}; set KITAE_CACHE to a folder with more room for large models")
    else:
        yield Finding("ok", "cache", text)


def _requirements() -> dict[str, list[Requirement]]:
    """What kitae's own package asks for: under "" always, under an extra's name for that."""
    grouped: dict[str, list[Requirement]] = defaultdict(list)
    try:
        stated = metadata.requires("kitae") or []
    except metadata.PackageNotFoundError:  # run from its source
        stated = []
    for requirement in map(Requirement, stated):
        for extra in ("", *(metadata.metadata("kitae").get_all("Provides-Extra") or [])):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                grouped[extra].append(requirement)
                break
    return grouped


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
