"""A fixture: the real ParallelCluster."""

from __future__ import annotations

import os
import shutil

import pytest

from kitae.cluster.pcluster import Engine, find, make


@pytest.fixture(scope="session")
def real() -> Engine:
    """ParallelCluster's own environment, made once in the cache."""
    if os.environ.get("KITAE_WITHOUT_PCLUSTER"):
        pytest.skip(f"ParallelCluster is left out: {os.environ['KITAE_WITHOUT_PCLUSTER']}")
    if shutil.which("node") is None:
        pytest.fail(
            "there is no node here, which ParallelCluster needs; KITAE_WITHOUT_PCLUSTER=why leaves it out"
        )
    return find() or make(print)
