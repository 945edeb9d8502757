"""What ranks measure when machines are tried: with real ranks, one of which is broken."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from probe_works import check_broken
from ranks import run_ranks

from kitae.launch.order import Launch
from kitae.launch.probe import read_rounds
from kitae.stages.node_check import check_machines


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("nothing", ["", ""]),
        ("products", ["a product of matrices came wrong", ""]),
        ("links", ["", "what node 0 sent came wrong"]),
    ],
)
def test_what_is_wrong_is_said_by_the_rank_that_sees_it(tmp_path: Path, what: str, said: list[str]):
    rounds = run_ranks(2, check_broken, str(tmp_path), what)[0]
    assert rounds[0] == said


def test_a_rank_that_cannot_write_keeps_nobody_waiting(tmp_path: Path):
    rounds = run_ranks(2, check_broken, str(tmp_path), "shared folder")[0]
    assert rounds[0][0] == "no room"
    assert rounds[0][1].startswith("shared folder: [Errno 2] No such file")


def test_all_measure_something(tmp_path: Path):
    run_ranks(3, check_broken, str(tmp_path), "nothing")
    for reports in read_rounds(tmp_path):
        assert [report.node for report in reports] == [0, 1, 2]
        for report in reports:
            assert set(report.received_s or {}) == {0, 1, 2} - {report.node}
            assert min((report.received_s or {}).values()) > 0
            assert report.matmul_s > 0
            assert abs(report.clock_s) < 1.0  # one clock


def test_a_slow_machine_is_found_through_a_starter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Three machines that srun would start, all of them here."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    starter = (sys.executable, str(Path(__file__).with_name("start_everywhere.py")), "3")
    addresses = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
    launch = Launch(
        3,
        1,
        "cpu",
        60.0,
        tmp_path / "logs",
        attempt=tmp_path,
        names=("a", "b", "c"),
        addresses=addresses,
        job=9,
    )
    found = check_machines(launch, starter, "probe_works:check_with_a_slow_machine")
    assert [(one.node, one.slow) for one in found if one.reason.startswith("it computes ")] == [(2, True)]
