"""Entries of Neuron's persistent cache and lines of its tools, written from the documented forms.

Neuron SDK: "Neuron Persistent Cache", "neuron_parallel_compile CLI"; the layout also as optimum-neuron's
cache module describes it. Hashes and graphs are made up; no such compiler ran.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

VERSION = "neuronxcc-2.21.18209.0+043b1bf7"
FLAGS = ("--model-type=transformer", "--auto-cast=none", "--target=trn1")
ERROR = (
    "2026-11-30T18:44:17Z [NLA001]  Unhandled exception with message: === BIR verification failed ===\n"
    "Reason: Invalid access of 2 partitions starting at partition 98\n"
)


def write_entry(
    root: Path,
    name: str,
    state: str = "done",
    *,
    version: str = VERSION,
    flags: Sequence[str] = FLAGS,
    graph: bytes = b"graph",
    neff: bytes = b"NEFF" * 100,
) -> Path:
    """One entry in a state; its folder."""
    folder = root / version / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.hlo_module.pb").write_bytes(graph)
    (folder / "compile_flags.json").write_text(json.dumps(list(flags)))
    if state in ("done", "half-written"):
        (folder / "model.neff").write_bytes(neff)
    if state == "done":
        (folder / "model.done").touch()
    if state == "failed":
        (folder / "model.log").write_text(f"Failed compilation with ['neuronx-cc', 'compile']: {ERROR}")
    if state == "locked":
        (folder / "model.hlo_module.pb.lock").touch()
    return folder


def extracting(root: Path, name: str, *, version: str = VERSION) -> str:
    """What the compiler's wrapper prints for a graph in a collect pass."""
    path = root / version / name / "model.hlo_module.pb"
    return (
        f"2026-11-30 16:03:47.000457:  29545  INFO ||NEURON_CC_WRAPPER||: Extracting graphs ({path}) for "
        "ahead-of-time parallel compilation. No compilation was done."
    )


def using(root: Path, name: str, *, version: str = VERSION) -> str:
    """What it prints for one whose artefact is there."""
    path = root / version / name / "model.neff"
    return (
        f"2026-11-30 16:03:47.000284:  29545  INFO ||NEURON_CC_WRAPPER||: Using a cached neff at {path}. "
        "Exiting with a successfully compiled graph."
    )
