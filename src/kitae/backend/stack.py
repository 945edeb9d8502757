"""What machine this is, and which of two products is installed as torch-neuronx.

One is for torch-xla (Trn1), the other is TorchNeuron (Trn2, Trn3).

Both have the same name, for pip and for import, and cannot share an environment. They are told apart by what
they offer, without importing them (that would start a runtime): TorchNeuron extends torch by itself (entry
point `torch.backends`) and needs no torch-xla; the other one is made of it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

PACKAGE = "torch-neuronx"
NEURON_TYPES = ("trn", "inf2")
"""What machine types with Neuron devices begin with."""
_NEURON_DEVICE = Path("/dev/neuron0")
_BY_BACKEND = {"neuron": "torchneuron", "cuda": "cuda", "cpu": "cpu"}
_PRODUCT = Path("/sys/devices/virtual/dmi/id/product_name")
Kind = Literal["absent", "xla", "native", "unclear"]


@dataclass(frozen=True)
class NeuronPackage:
    """What is installed under the name of both."""

    kind: Kind
    version: str = ""
    signs: tuple[str, ...] = ()
    """What it was told by."""


Sign = Callable[[metadata.Distribution], str | None]


def _extends_torch(found: metadata.Distribution) -> str | None:
    groups = {one.group for one in found.entry_points}
    return "extends torch by itself (entry point torch.backends)" if "torch.backends" in groups else None


def _needs_no_xla(found: metadata.Distribution) -> str | None:
    """Only where requirements are stated at all: silence is no sign."""
    needed = [re.split(r"[ ;<>=!~\[(]", one, maxsplit=1)[0].lower() for one in found.requires or []]
    torch_alone = "torch" in needed and not {"torch-xla", "torch_xla", "libneuronxla"} & set(needed)
    return "needs torch without torch-xla" if torch_alone else None


def _short_version(found: metadata.Distribution) -> str | None:
    """2.14.3.0 is TorchNeuron's for torch 2.14; 2.9.0.2.12.22436 the other's for torch 2.9.0."""
    public = found.version.partition("+")[0].split(".")
    return f"its version has {len(public)} numbers" if len(public) <= 4 else None


def _needs_xla(found: metadata.Distribution) -> str | None:
    needed = " ".join(found.requires or []).lower()
    return "needs torch-xla" if re.search(r"\b(torch[-_]xla|libneuronxla)\b", needed) else None


def _holds_xla(found: metadata.Distribution) -> str | None:
    inside = any(str(one).startswith("torch_neuronx/xla") for one in found.files or [])
    return "holds torch_neuronx/xla*" if inside else None


_NATIVE: tuple[Sign, ...] = (_extends_torch, _needs_no_xla, _short_version)
_XLA: tuple[Sign, ...] = (_needs_xla, _holds_xla)


def stack_here(backend: str) -> str:
    """Name of the stack that a backend of the table runs on, on this machine."""
    if backend == "xla" and os.environ.get("PJRT_DEVICE") == "CPU":
        return "xla-cpu"
    instance = instance_type()
    return stack_of(backend, instance if instance.startswith(NEURON_TYPES) else "")


def stack_of(backend: str, instance: str = "") -> str:
    """Name of the stack that a backend of the table runs on: on a machine type, or on an unknown one here."""
    if backend != "xla":
        return _BY_BACKEND.get(backend, "cpu")
    chip = instance.startswith(NEURON_TYPES) or (not instance and _NEURON_DEVICE.exists())
    return "trn1-xla" if chip else "xla-cpu"


def instance_type() -> str:
    """The type of this machine, as its firmware says; empty where it says none."""
    try:
        return _PRODUCT.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def neuron_package() -> NeuronPackage:
    """What is installed as torch-neuronx; `unclear` where no sign, or signs of both, are there."""
    try:
        found = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        return NeuronPackage("absent")
    native = [sign for look in _NATIVE if (sign := look(found)) is not None]
    xla = [sign for look in _XLA if (sign := look(found)) is not None]
    kind: Kind = "unclear"
    if len(native) > len(xla):
        kind = "native"
    elif len(xla) > len(native):
        kind = "xla"
    return NeuronPackage(kind, found.version, (*native, *xla))


def compile_cache(environ: Mapping[str, str]) -> str | None:
    """Where the XLA compiler's cache is to lie: --cache_dir in the flags wins over the variable."""
    flags = _words(environ.get("NEURON_CC_FLAGS", ""))
    for index, flag in enumerate(flags):
        if flag.startswith("--cache_dir="):
            return flag.removeprefix("--cache_dir=")
        if flag == "--cache_dir" and index + 1 < len(flags):
            return flags[index + 1]
    return environ.get("NEURON_COMPILE_CACHE_URL")


def _words(flags: str) -> list[str]:
    try:
        return shlex.split(flags)
    except ValueError:  # a quote that is not closed
        return flags.split()
