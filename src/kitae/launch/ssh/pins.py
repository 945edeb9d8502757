"""What is installed there: the versions that run here."""

from __future__ import annotations

import importlib.metadata as metadata
from collections.abc import Iterable
from functools import cache

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from kitae.errors import ClusterError

EXTRAS = ("demo", "hub", "hdf5", "ja", "tensorboard", "wandb", "mlflow", "trackio", "watch")
"""Those that a run can need."""


def extras_here(needs: Iterable[str]) -> list[str]:
    """Extras all of whose packages are installed here; `needs` are lines `Requires-Dist: ..`."""
    found = [extra for extra in EXTRAS if all(_installed(name) for name in _direct(needs, extra))]
    return [extra for extra in found if list(_direct(needs, extra))]


def pins(needs: Iterable[str], extras: Iterable[str]) -> str:
    """Lines `name==version` of all that kitae needs with these extras, as installed here; for pip."""
    needs = list(needs)
    names = {name for extra in ("", *extras) for name in _direct(needs, extra)}
    missing = sorted(name for name in names if _installed(name) is None)
    if missing:
        raise ClusterError(
            f"kitae needs {', '.join(missing)}, which is not installed here; install it with pip"
        )
    seen: dict[str, str] = {}
    left = list(names)
    while left:
        name = left.pop()
        version = _installed(name)
        if version is None or name in seen:
            continue
        # A build such as 2.13.0+cpu is of this machine; there the index decides which one it is.
        seen[name] = Version(version).public
        left += [one for one in _needed_by(name) if one not in seen]
    return "".join(f"{name}=={version}\n" for name, version in sorted(seen.items()))


def _direct(needs: Iterable[str], extra: str) -> Iterable[str]:
    """Names of what kitae itself needs; with an extra, of what only that needs."""
    for line in needs:
        field, _, text = line.partition(": ")
        if field == "Requires-Dist" and _counts(Requirement(text), extra):
            yield canonicalize_name(Requirement(text).name)


def _counts(need: Requirement, extra: str) -> bool:
    plain = need.marker is None or need.marker.evaluate({"extra": ""})
    if not extra:
        return plain
    return not plain and need.marker is not None and need.marker.evaluate({"extra": extra})


@cache
def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _needed_by(name: str) -> list[str]:
    found = (Requirement(text) for text in metadata.requires(name) or ())
    return [canonicalize_name(need.name) for need in found if _counts(need, "")]
