"""Machines of jobs: seen in `status`, stopped by `status --watch` when their boots fail again and again."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta, timezone
from itertools import count

import pytest
from cluster_case import loaded, write_cluster
from clustermgtd_logs import boot_loop, capacity_refusal

from kitae.cli.main import main
from kitae.cluster.aws import Account
from kitae.cluster.engine_calls import Clusters
from kitae.cluster.guard import limits_of, publish_limits
from kitae.cluster.guard_program import Limits
from kitae.cluster.watching import Vigil, keep_watch, news, watch_lines
from kitae.errors import ClusterError

GROUP = "/aws/parallelcluster/llama-202612010200"
BUCKET = "kitae-llama-123456789012-us-west-2"


@pytest.fixture
def account(engine, monkeypatch) -> Account:
    monkeypatch.setattr("kitae.cluster.watching.PAUSE_S", 0.0)
    return Account("us-west-2")


def start(account: Account, number: int, queue: str = "train") -> None:
    ec2 = account.client("ec2")
    tags = [
        {"Key": "parallelcluster:cluster-name", "Value": "llama"},
        {"Key": "parallelcluster:queue-name", "Value": queue},
    ]
    ec2.run_instances(
        ImageId=ec2.describe_images()["Images"][0]["ImageId"],
        MinCount=number,
        MaxCount=number,
        InstanceType="trn1.32xlarge",
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )


def wrote(account: Account, log: str, lines: list[str]) -> None:
    """What the head node sent to CloudWatch a moment ago."""
    client, stream = account.client("logs"), f"ip-10-60-0-9.i-0123456789abcdef0.{log}"
    if not client.describe_log_groups()["logGroups"]:
        client.create_log_group(logGroupName=GROUP)
    client.create_log_stream(logGroupName=GROUP, logStreamName=stream)
    now = int(time.time() * 1000) - 60_000
    events = [{"timestamp": now + place, "message": line} for place, line in enumerate(lines)]
    client.put_log_events(logGroupName=GROUP, logStreamName=stream, logEvents=events)


def test_machines_are_told_by_queue_with_what_they_cost(account, tmp_path):
    """3 x 20/60 x price."""
    start(account, 3)
    begun = account.client("ec2").describe_instances()["Reservations"][0]["Instances"][0]["LaunchTime"]
    [one] = news(account, "llama", begun + timedelta(minutes=20))
    assert one.states == {"running": 3}
    assert (
        one.line(Limits(5, 1200, {"train": "21.50"})) == "queue train: 3 running, $21.50 since they started"
    )
    assert one.line(Limits(5, 1200, {})) == "queue train: 3 running"


def test_boots_that_failed_and_refusals_are_told_in_words(account, tmp_path):
    wrote(account, "clustermgtd", boot_loop("train", nodes=1, boots=4, minutes=20))
    wrote(account, "slurm_resume", [capacity_refusal("train", 4)])
    [line] = watch_lines(account, "llama", loaded(tmp_path).file, datetime.now(timezone.utc))
    assert line.startswith(
        "queue train: no machine; 3 boots failed (Node train-st-trn1-1(10.60.0.9) is curren"
    )
    assert "which cost $21.50; 5 end it" in line  # 3 x 20/60 x price
    assert line.endswith("take another zone, a reservation or a capacity block, or try again later")


def test_what_the_head_node_ended_is_told(account, tmp_path):
    where = {"LocationConstraint": "us-west-2"}
    account.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration=where)
    told = {"time": "2026-12-01T04:00:00Z", "queue": "train", "text": "3 of 4 machines of job 12 came"}
    body = json.dumps({"verdicts": [told], "offsets": {}})
    account.client("s3").put_object(Bucket=BUCKET, Key="guard/report.json", Body=body.encode())
    lines = list(watch_lines(account, "llama", None, datetime.now(timezone.utc)))
    assert lines == [
        "ended by the head node at 2026-12-01T04:00:00Z: queue train: 3 of 4 machines of job 12 came"
    ]
    account.client("s3").put_object(Bucket=BUCKET, Key="guard/report.json", Body=b"{")
    assert list(watch_lines(account, "llama", None, datetime.now(timezone.utc))) == []


def vigil(account: Account, engine, tmp_path, said: list[str], *changes: str) -> Vigil:
    engine.know("llama")
    minutes = count(0, 300)
    return Vigil(
        account,
        Clusters(engine, "us-west-2"),
        "llama",
        loaded(tmp_path, *changes).file,
        said.append,
        lambda: next(minutes),
    )


@pytest.mark.parametrize(("boots", "stopped"), [(5, False), (6, True)])
def test_a_watch_stops_the_fleet_at_the_configured_number_of_failed_boots(
    boots, stopped, account, engine, tmp_path
):
    """Row 17, with the cost so far."""
    wrote(account, "clustermgtd", boot_loop("train", nodes=1, boots=boots, minutes=10))
    said: list[str] = []
    watched = vigil(account, engine, tmp_path, said)
    looks = iter([True, True, False])
    if not stopped:
        keep_watch(watched, lambda: next(looks))
        assert len(said) == 1  # nothing changed since
        return
    with pytest.raises(ClusterError, match=r"5 boots failed .* which cost \$17\.92; 5 end it; all machines"):
        keep_watch(watched, lambda: next(looks))
    assert engine.asked[-1].endswith("--status STOP_REQUESTED")


def test_a_watch_stops_machines_that_wait_for_others(account, engine, tmp_path):
    """T55: 3 x 20/60 x price."""
    start(account, 3)
    watched = vigil(account, engine, tmp_path, [], "queues.0.min=4", "limits.idle_stop=null")
    with pytest.raises(ClusterError, match=r"3 of 4 machines came, and waited 20 minutes .* cost \$21\.50"):
        keep_watch(watched)


def test_status_tells_of_queues(account, engine, tmp_path, capsys):
    start(account, 2)
    assert main(["cluster", "status", str(write_cluster(tmp_path))]) == 0
    assert "queue train: 2 running, $0.0" in capsys.readouterr().out


def test_the_guard_is_told_what_the_file_allows(account, tmp_path):
    """In the bucket, where it can change while the cluster stands."""
    where = {"LocationConstraint": "us-west-2"}
    account.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration=where)
    file = loaded(tmp_path, "limits.boot_failures=3", "limits.capacity_wait=1 hour").file
    publish_limits(account, BUCKET, file)
    body = account.client("s3").get_object(Bucket=BUCKET, Key="guard/limits.json")["Body"].read()
    (tmp_path / "limits.json").write_bytes(body)
    told = Limits.at(tmp_path / "limits.json")
    assert told == limits_of(file) == Limits(3, 3600.0, {"train": "21.50"})
    assert Limits.at(tmp_path / "none.json") == Limits(5, 1200.0, {})
