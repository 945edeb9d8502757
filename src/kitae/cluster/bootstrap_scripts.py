"""Files that nodes run as they start: scripts, of a common part and one of their own, and the guard."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib import resources

NODES = ("head", "compute")
"""Kinds of nodes, each with its script."""
GUARD = "guard.py"
"""What watches the machines of jobs, on the head node."""


def script_of(node: str) -> str:
    """The script for a kind of node."""
    folder = resources.files("kitae.cluster").joinpath("bootstrap")
    return "\n".join(folder.joinpath(f"{part}.sh").read_text("utf-8") for part in ("common", node))


def node_files() -> Mapping[str, str]:
    """All of them by name."""
    guard = resources.files("kitae.cluster").joinpath("guard_program.py").read_text("utf-8")
    return {**{f"{node}.sh": script_of(node) for node in NODES}, GUARD: guard}


def scripts_folder() -> str:
    """The folder of the bucket for them, named after what they say: new ones stand beside old."""
    whole = "\0".join(node_files().values())
    return f"bootstrap/{hashlib.sha256(whole.encode()).hexdigest()[:16]}"
