"""Where machines meet: address, port and interface."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from kitae.errors import TrainingError
from kitae.launch import meeting
from kitae.launch.meeting import (
    FIRST_PORT,
    PORTS,
    address_of,
    interface_of,
    meet,
    open_store,
    refuse_loopback,
)


def test_all_machines_meet_at_the_first(tmp_path: Path):
    found: dict[int, meeting.Meeting] = {}
    addresses = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]

    def one(node: int) -> None:
        found[node] = meet(tmp_path, 7, node, addresses)

    threads = [threading.Thread(target=one, args=(node,)) for node in (2, 1, 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert {one.endpoint for one in found.values()} == {found[0].endpoint}
    assert found[0].endpoint.startswith("127.0.0.1:")
    assert {one.interface for one in found.values()} == {"lo"}


def test_a_loopback_address_is_refused_where_there_are_other_machines():
    """T44: the name of the first host stands for 127.0.1.1 in its own /etc/hosts."""
    refuse_loopback(["127.0.1.1", "127.0.1.2"])
    refuse_loopback(["10.0.0.1", "10.0.0.2"])
    with pytest.raises(TrainingError, match=r"first node's address is 127\.0\.1\.1"):
        refuse_loopback(["127.0.1.1", "10.0.0.2"])


def test_ports_follow_from_the_job_and_are_tried():
    """T45 and pain 18."""
    first = open_store("127.0.0.1", 5, 2)
    port = first.port
    assert FIRST_PORT <= port < FIRST_PORT + PORTS
    assert open_store("127.0.0.1", 6, 2).port != port
    del first
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("", port))
        taken.listen()
        assert open_store("127.0.0.1", 5, 2).port == port + 1


def test_no_port_is_free(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(meeting, "_TRIES", 0)
    with pytest.raises(TrainingError, match=r"ports of 127\.0\.0\.1 is free"):
        open_store("127.0.0.1", 5, 2)


def test_the_first_machine_says_nothing(tmp_path: Path):
    times = iter([0.0, 1e9])
    with pytest.raises(TrainingError, match=r"the first node \(127\.0\.0\.1\) has not begun"):
        meet(tmp_path, 7, 1, ["127.0.0.1", "127.0.0.2"], now=lambda: next(times))


def test_addresses_and_interfaces():
    assert address_of("localhost") == "127.0.0.1"
    with pytest.raises(TrainingError, match=r"no-such-host\.invalid: its address cannot be found"):
        address_of("no-such-host.invalid")
    assert interface_of("127.0.1.9") == "lo"
    assert interface_of("203.0.113.9") == ""
