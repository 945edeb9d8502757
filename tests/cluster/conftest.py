"""An account of AWS that lives in moto's server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from moto_server import Moto, moto_server


@pytest.fixture(scope="session")
def moto_process(tmp_path_factory) -> Iterator[Moto]:
    """The server, once for all tests of a process."""
    pytest.importorskip("moto")
    with moto_server(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def moto(moto_process, monkeypatch) -> Moto:
    """An empty account, to which every client of this process talks."""
    moto_process.reset()
    for name, value in moto_process.environment.items():
        monkeypatch.setenv(name, value)
    return moto_process
