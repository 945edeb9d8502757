"""A head node for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from head_node import HeadNode, head_node

from kitae.launch.ssh.link import Head, Link
from kitae.launch.ssh.probe import look


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HeadNode:
    """Reached as `head`."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    return head_node(tmp_path / "node", monkeypatch)


@pytest.fixture
def told() -> list[str]:
    """What a person was told."""
    return []


@pytest.fixture
def waited() -> list[float]:
    """Seconds that were waited before each further connection."""
    return []


@pytest.fixture
def head(node: HeadNode, told: list[str], waited: list[float]) -> Head:
    """The head node, looked at."""
    found, _ = look(Link("head", told.append, waited.append), str(node.work), None)
    return found
