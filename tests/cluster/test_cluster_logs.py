"""`kitae cluster logs`: of nodes that are there and of those that are gone, from CloudWatch."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from kitae.cli.main import main
from kitae.cluster.aws import Account
from kitae.cluster.logs import LogLine, Wanted, chosen, follow, lines, streams_of

GROUP = "/aws/parallelcluster/llama-202612011200"
HEAD, NODE = "i-0000000000000000a", "i-0000000000000000b"
BASE = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(hours=2)
MINE = ["cluster", "logs", "llama", "--region", "us-west-2"]


def write(account: Account, group: str, stream: str, *told: tuple[int, str]) -> None:
    client = account.client("logs")
    if not client.describe_log_groups(logGroupNamePrefix=group)["logGroups"]:
        client.create_log_group(logGroupName=group)
    if not client.describe_log_streams(logGroupName=group, logStreamNamePrefix=stream)["logStreams"]:
        client.create_log_stream(logGroupName=group, logStreamName=stream)
    events = [
        {"timestamp": int((BASE + timedelta(seconds=second)).timestamp() * 1000), "message": text}
        for second, text in told
    ]
    client.put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)


@pytest.fixture
def account(engine) -> Account:
    found = Account("us-west-2")
    write(found, GROUP, f"ip-10-60-0-4.{HEAD}.slurmctld", (1, "slurmctld starts"), (9, "job 7 done"))
    write(found, GROUP, f"ip-10-60-0-4.{HEAD}.clustermgtd", (3, "all is well"))
    write(found, GROUP, f"ip-10-60-128-7.{NODE}.cloud-init", (2, "hello"), (5, "packages are there"))
    write(found, "/aws/parallelcluster/llama-2-202612011200", f"ip-1.{HEAD}.slurmctld", (1, "of another"))
    return found


def test_streams_say_host_machine_and_log(account):
    found = {(one.host, one.machine, one.log) for one in streams_of(account, "llama")}
    assert found == {
        ("ip-10-60-0-4", HEAD, "slurmctld"),
        ("ip-10-60-0-4", HEAD, "clustermgtd"),
        ("ip-10-60-128-7", NODE, "cloud-init"),
    }


def test_lines_come_in_the_order_of_their_times(account):
    found = lines(account, streams_of(account, "llama"))
    assert [line.text for line in found] == [
        "slurmctld starts",
        "hello",
        "all is well",
        "packages are there",
        "job 7 done",
    ]


def test_the_newest_group_is_read(account):
    write(account, "/aws/parallelcluster/llama-202612021200", f"ip-1.{HEAD}.slurmctld", (1, "newer"))
    assert [line.text for line in lines(account, streams_of(account, "llama"))] == ["newer"]


@pytest.mark.parametrize(
    ("wanted", "logs"),
    [
        (Wanted(), {"slurmctld", "clustermgtd", "cloud-init"}),
        (Wanted(node="ip-10-60-128"), {"cloud-init"}),
        (Wanted(node=HEAD), {"slurmctld", "clustermgtd"}),
        (Wanted(logs=("bootstrap",)), {"cloud-init"}),
        (Wanted(logs=("fleet", "slurmctld")), {"slurmctld", "clustermgtd"}),
    ],
)
def test_logs_are_chosen_by_node_and_kind(wanted, logs, account):
    assert {one.log for one in chosen(account, "llama", wanted)} == logs


def test_the_verb_prints_the_last_lines(account, capsys):
    assert main([*MINE, "--lines", "2"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[2] for line in said] == ["packages are there", "job 7 done"]
    assert "ip-10-60-0-4 slurmctld" in said[-1]


def test_only_since_then(account, capsys):
    since = (BASE + timedelta(seconds=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert main([*MINE, "--since", since]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main([*MINE, "--since", "1 hours"]) == 0
    assert capsys.readouterr().out == ""
    assert main([*MINE, "--since", "soon"]) == 2
    assert "--since: 'soon' is no time" in capsys.readouterr().err


def test_which_there_are(account, capsys):
    assert main([*MINE, "--list", "--node", "ip-10-60-128"]) == 0
    assert capsys.readouterr().out.startswith(f"ip-10-60-128-7  {NODE}  cloud-init  last line 20")


def test_the_first_error_is_told_in_plain_words(account, capsys):
    """Row 41."""
    text = "(InsufficientInstanceCapacity) when calling the RunInstances operation"
    write(account, GROUP, f"ip-10-60-0-4.{HEAD}.slurm_resume", (6, text))
    assert main(MINE) == 0
    said = capsys.readouterr().err
    assert "the first error: " in said
    assert "AWS has not enough of these machines free in the zone now" in said


def test_what_is_not_there_is_said_with_what_is(account, capsys):
    assert main([*MINE, "--log", "nothing"]) == 8
    assert "no log of llama is that; nodes: ip-10-60-0-4, ip-10-60-128-7; logs: c" in capsys.readouterr().err


def test_a_cluster_without_logs(engine, capsys):
    assert main(MINE) == 8
    assert "there are no logs of llama in us-west-2" in capsys.readouterr().err


def test_followed_lines_come_once_each_and_from_nodes_that_come_later(account, monkeypatch):
    monkeypatch.setattr("kitae.cluster.logs.PAUSE_S", 0.0)
    said: list[LogLine] = []
    later = iter([("slurmctld", 20, "one"), ("slurmd", 15, "of another node")])

    def go_on() -> bool:
        told = next(later, None)
        if told is not None:
            log, second, text = told
            write(account, GROUP, f"ip-10-60-0-4.{HEAD}.{log}", (second, text))
        rounds.append(1)
        return len(rounds) < 5

    rounds: list[int] = []
    follow(account, lambda: streams_of(account, "llama"), BASE + timedelta(seconds=10), said.append, go_on)
    assert [line.text for line in said] == ["one", "of another node"]


def test_a_stop_by_hand_is_quiet(account, monkeypatch, capsys):
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kitae.cluster.logs.follow", stopped)
    assert main([*MINE, "--follow"]) in (130, 1)
    assert "Traceback" not in capsys.readouterr().err
