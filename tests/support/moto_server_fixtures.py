"""Fixtures: an account of AWS that lives in moto's server, and ParallelCluster played."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from moto_server import Moto, moto_server
from pcluster_standin import StandIn

from kitae.cluster.aws import Account


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


BEFORE_CALL: list[Callable[[], None]] = [lambda: None]
"""The last one is called before each call of kitae's own."""
_CLIENTS: dict[tuple[str | None, ...], object] = {}
"""Of all tests of a process, by server: one takes a tenth of a second to make."""


def _client(account: Account, service: str, region: str | None = None) -> object:
    import boto3

    key = (os.environ.get("AWS_ENDPOINT_URL"), service, region or account.region)
    if key not in _CLIENTS:
        made = boto3.client(service, region_name=region or account.region)
        made.meta.events.register("before-call", lambda **_: BEFORE_CALL[-1]())
        _CLIENTS[key] = made
    return _CLIENTS[key]


@pytest.fixture
def engine(moto, tmp_path, monkeypatch) -> StandIn:
    """ParallelCluster, played: what kitae finds in the place of its environment. Nothing waits."""
    found = StandIn(tmp_path)
    monkeypatch.setattr("kitae.cluster.pcluster.find", lambda: found)
    monkeypatch.setattr("kitae.cluster.aws.Account.client", _client)
    monkeypatch.setattr("kitae.cluster.pcluster.node_missing", lambda: None)
    monkeypatch.setattr("kitae.cluster.up.PAUSE_S", 0.0)
    monkeypatch.setattr("kitae.cluster.down.PAUSE_S", 0.0)
    monkeypatch.setattr("kitae.cluster.down.PASSES", 3)
    monkeypatch.setattr("kitae.cluster.saving.PAUSE_S", 0.0)
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "cache"))
    return found
