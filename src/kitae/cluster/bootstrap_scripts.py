"""The scripts that nodes run when they start: whole files, made of a common part and one of their own."""

from __future__ import annotations

import hashlib
from importlib import resources

NODES = ("head", "compute")
"""Kinds of nodes, each with its script."""


def script_of(node: str) -> str:
    """The script for a kind of node."""
    folder = resources.files("kitae.cluster").joinpath("bootstrap")
    return "\n".join(folder.joinpath(f"{part}.sh").read_text("utf-8") for part in ("common", node))


def scripts_folder() -> str:
    """The folder of the bucket for them, named after what they say: new ones stand beside old."""
    whole = "\0".join(script_of(node) for node in NODES)
    return f"bootstrap/{hashlib.sha256(whole.encode()).hexdigest()[:16]}"
