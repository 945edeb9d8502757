"""When machines are tried, and what follows from what is found."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from kitae.errors import RecipeError, StoppedError, TrainingError
from kitae.launch.failure import End, NodeLostError
from kitae.launch.node import node_file
from kitae.launch.node_end import NodeEnd
from kitae.launch.nodecheck import Finding, NodeFaultError
from kitae.launch.order import Launch
from kitae.launch.outcome import Outcome
from kitae.recipe.target import TargetConfig
from kitae.stages import node_check
from kitae.stages.node_check import check_machines, check_nodes, is_wanted


@pytest.mark.parametrize(
    ("values", "nodes", "wanted"),
    [
        ({}, 2, True),
        ({}, 1, False),
        ({"exclusive": False}, 2, False),
        ({"exclusive": False, "node_check": True}, 1, True),
        ({"node_check": False}, 8, False),
    ],
)
def test_when_machines_are_tried(values: dict[str, object], nodes: int, wanted: bool):
    assert is_wanted(TargetConfig(**values), nodes) is wanted


def launch(folder: Path) -> Launch:
    return Launch(
        2,
        1,
        "cpu",
        300.0,
        folder / "logs",
        attempt=folder / "attempts/0001",
        names=("n1", "n2"),
        addresses=("127.0.0.1", "127.0.0.2"),
    )


def check(folder: Path, monkeypatch: pytest.MonkeyPatch, *found: Finding) -> list[str]:
    """Check a job of two nodes of which this is found; what is told."""
    told: list[str] = []
    monkeypatch.setattr(node_check, "check_machines", lambda launch, starter: list(found))
    job = SimpleNamespace(
        recipe=SimpleNamespace(target=TargetConfig()), run=SimpleNamespace(path=folder), report=told.append
    )
    check_nodes(job, launch(folder), ("srun",))  # type: ignore[arg-type]
    return told


def test_nodes_that_are_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert check(tmp_path, monkeypatch) == ["node check: 2 nodes are well"]


def test_a_broken_node_is_named_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for _ in range(2):
        with pytest.raises(NodeFaultError) as raised:
            check(tmp_path, monkeypatch, Finding(1, "a product came wrong"))
        assert (raised.value.node, raised.value.reason) == ("n2", "a product came wrong")


def test_a_slow_node_ends_an_attempt_once_and_is_used_where_none_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    slow = Finding(1, "it computes 2.0 x as slowly as the others", slow=True)
    with pytest.raises(NodeFaultError, match="node n2 is not fit for a training: it computes"):
        check(tmp_path, monkeypatch, slow)
    assert check(tmp_path, monkeypatch, slow) == [
        "node check: n2: it computes 2.0 x as slowly as the others; no other took its place, so it is used"
    ]
    with pytest.raises(NodeFaultError, match="node n1"):
        check(tmp_path, monkeypatch, Finding(0, "it computes slowly", slow=True))


def fail(monkeypatch: pytest.MonkeyPatch, error: BaseException, *ends: NodeEnd) -> None:
    """Let the start of the check end so."""

    def launched(entry: str, arguments: object, launch: Launch, starter: object) -> None:
        assert launch.attempt is not None
        assert launch.timeout_s == 60.0
        for number, end in enumerate(ends):
            end.write(node_file(launch.attempt, number))
        raise error

    monkeypatch.setattr(node_check, "launch_nodes", launched)


def end(node: str, rank: int, *, own: bool) -> NodeEnd:
    outcome = Outcome("bug", "RuntimeError: no device", lost_peer=not own, at_ns=1)
    return NodeEnd(node, (End(rank, 1, 70, outcome, ended_here=False, noticed_ns=1),))


def test_a_node_on_which_nothing_works_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fail(
        monkeypatch, TrainingError("rank 1: no device\nmore"), end("n1", 0, own=False), end("n2", 1, own=True)
    )
    with pytest.raises(NodeFaultError, match=r"^node n2 is not fit for a training: rank 1: no device$"):
        check_machines(launch(tmp_path), ("srun",))


def test_a_node_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fail(monkeypatch, NodeLostError("node n1 is gone", "n1"))
    with pytest.raises(NodeFaultError, match="node n1 is not fit"):
        check_machines(launch(tmp_path), ("srun",))


def test_what_all_nodes_have_is_no_fault_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fail(monkeypatch, RecipeError("no backend"), end("n1", 0, own=True), end("n2", 1, own=True))
    with pytest.raises(RecipeError, match="no backend"):
        check_machines(launch(tmp_path), ("srun",))


def test_a_stop_is_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fail(monkeypatch, StoppedError("stopped by SIGTERM"))
    with pytest.raises(StoppedError):
        check_machines(launch(tmp_path), ("srun",))
