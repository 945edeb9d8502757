"""Machines that never all come, or start again and again: the wait ends, and its cost is told."""

from __future__ import annotations

from decimal import Decimal
from itertools import count

import pytest
from cluster_case import loaded

from kitae.cluster.aws import Account
from kitae.cluster.engine_calls import Clusters
from kitae.cluster.fleet import Watch, await_fleet, cost_of_wait
from kitae.errors import ClusterError


def running(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "running")


def test_three_of_four_for_twenty_minutes_are_released_and_cost_what_they_cost():
    """T55: 3 x 20/60 x price."""
    watch = Watch(wanted=4, boot_failures=5, patience_s=1200)
    verdicts = [watch.see(60.0 * minute, running("a", "b", "c")) for minute in range(21)]
    assert verdicts[:20] == ["waiting"] * 20
    assert verdicts[20] == "3 of 4 machines came, and waited 20 minutes for the others"
    assert cost_of_wait(watch.machine_s, Decimal("21.50")) == Decimal("21.50")


def test_the_wait_begins_with_the_first_machine_that_is_paid_for():
    watch = Watch(wanted=2, boot_failures=5, patience_s=600)
    assert watch.see(3000, {}) == "waiting"
    assert watch.see(3060, running("a")) == "waiting"
    assert watch.see(3120, running("a", "b")) == "there"


def test_where_none_comes_the_wait_ends_too_and_cost_nothing():
    watch = Watch(wanted=2, boot_failures=5, patience_s=600)
    assert [watch.see(second, {}) for second in (0, 599)] == ["waiting", "waiting"]
    assert watch.see(600, {}) == "no machine came for 10 minutes"
    assert watch.machine_s == 0


def test_machines_that_start_again_and_again_are_counted():
    """Row 17: stops at the configured number."""
    watch = Watch(wanted=1, boot_failures=3, patience_s=10**6)
    verdicts = [watch.see(100.0 * n, {f"i-{n}": "pending", f"i-{n - 1}": "terminated"}) for n in range(1, 5)]
    assert verdicts == ["waiting", "waiting", "waiting", "3 machines started and went away again"]


def test_pending_machines_are_not_there_yet():
    assert Watch(1, 3, 600).see(0, {"a": "pending"}) == "waiting"


def start(account: Account, states: int) -> None:
    ec2 = account.client("ec2")
    tags = [
        {"Key": "parallelcluster:cluster-name", "Value": "llama"},
        {"Key": "parallelcluster:queue-name", "Value": "train"},
    ]
    ec2.run_instances(
        ImageId=ec2.describe_images()["Images"][0]["ImageId"],
        MinCount=states,
        MaxCount=states,
        InstanceType="trn1.32xlarge",
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )


@pytest.mark.parametrize(("came", "there"), [(4, True), (3, False)])
def test_a_fleet_that_does_not_come_is_stopped(came, there, engine, tmp_path, monkeypatch):
    """Row 16: all or nothing, also for machines that are always on."""
    monkeypatch.setattr("kitae.cluster.fleet.PAUSE_S", 0.0)
    account, clusters = Account("us-west-2"), Clusters(engine, "us-west-2")
    engine.know("llama")
    start(account, came)
    file = loaded(tmp_path, "queues.0.min=4", "limits.idle_stop=null").file
    minutes = count(0, 300)
    said: list[str] = []
    if there:
        await_fleet(account, clusters, file, said.append, lambda: next(minutes))
        assert said == ["queue train: all 4 machines are there"]
        return
    with pytest.raises(
        ClusterError, match=r"3 of 4 machines came, and waited 20 minutes .* which cost \$21\.50"
    ):
        await_fleet(account, clusters, file, said.append, lambda: next(minutes))
    assert engine.asked[-1].endswith("--status STOP_REQUESTED")


def test_a_loop_while_the_cluster_is_made_ends_the_wait(engine, tmp_path, monkeypatch, capsys):
    """Row 17: the head node waits for machines that are always on, so the cluster never stands."""
    from cluster_case import GOOD, write_cluster

    from kitae.cli.main import main

    seen = count()

    def states(account: Account, cluster: str) -> dict[str, dict[str, str]]:
        number = next(seen)
        return {"train": {f"i-{number}": "running", f"i-{number - 1}": "terminated"}} if number else {}

    monkeypatch.setattr("kitae.cluster.fleet._states", states)
    engine.play(polls=50)
    text = GOOD.replace("max: 4", "max: 4\n    min: 1").replace(
        "1100", "1100\n  idle_stop: null\n  boot_failures: 3"
    )
    assert main(["cluster", "up", str(write_cluster(tmp_path, text)), "--yes"]) == 8
    said = capsys.readouterr().err
    assert "queue train: 3 machines started and went away again, which cost $" in said
    assert "its machines are stopped now. kitae cluster logs has what the nodes wrote." in said
    assert engine.asked[-1].endswith("--status STOP_REQUESTED")


def test_a_fleet_that_cannot_be_stopped_is_told(engine, tmp_path, monkeypatch):
    """The cluster is not there yet as ParallelCluster sees it."""
    monkeypatch.setattr("kitae.cluster.fleet.PAUSE_S", 0.0)
    account, clusters = Account("us-west-2"), Clusters(engine, "us-west-2")
    start(account, 3)
    file = loaded(tmp_path, "queues.0.min=4", "limits.idle_stop=null").file
    minutes = count(0, 300)
    with pytest.raises(ClusterError, match=r"could not be stopped, and bill on \(the fleet of llama"):
        await_fleet(account, clusters, file, print, lambda: next(minutes))
