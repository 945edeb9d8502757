"""The life of a cluster against moto and a stand-in for ParallelCluster: made, taken down, proven gone."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cluster_case import GOOD, write_cluster
from pcluster_standin import StandIn

from kitae.cli.main import main
from kitae.cluster.aws import Account
from kitae.cluster.engine_calls import Clusters
from kitae.cluster.kinds import Thing
from kitae.cluster.leftovers import belongs, scan
from kitae.cluster.policy import Scope
from kitae.cluster.stacks import find_stack, make_stack
from kitae.cluster.switch import switch_template
from kitae.errors import ClusterError

MINE = "llama"


@pytest.fixture
def file(engine, tmp_path) -> str:
    return str(write_cluster(tmp_path))


@pytest.fixture
def account(moto) -> Account:
    return Account("us-west-2")


def run(*words: str) -> int:
    return main(["cluster", *words])


def stand(engine: StandIn, tmp_path: Path) -> None:
    """A cluster without a network of its own, made by ParallelCluster alone: cheaper than `up`."""
    config = tmp_path / "made.yaml"
    subnet = Account("us-west-2").client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
    head = {"InstanceType": "c5.4xlarge", "Networking": {"SubnetId": subnet}}
    config.write_text(json.dumps({"Tags": [], "HeadNode": head, "Scheduling": {"SlurmQueues": []}}))
    words = [
        "create-cluster",
        "--cluster-name",
        MINE,
        "--region",
        "us-west-2",
        "--cluster-configuration",
        str(config),
    ]
    assert engine.answer(words)[0] == 0
    engine.answer(["describe-cluster", *words[1:5]])
    engine.answer(["describe-cluster", *words[1:5]])


def _urls(words: list[str], kind: str) -> list[str]:
    return [word.removeprefix(f"{kind}=s3://") for word in words if word.startswith(f"{kind}=")]


def left(account: Account) -> list[str]:
    return [one.line() for one in scan(account, MINE)]


def test_up_then_down_leaves_nothing(file, engine, account, capsys):
    assert run("up", file, "--yes") == 0
    said = capsys.readouterr()
    assert "llama stands; its head node is 203.0.113.9" in said.out
    assert "trn1.32xlarge" in said.out.split("llama stands")[0]
    kinds = {one.kind.name for one in scan(account, MINE)}
    assert kinds == {
        "instance",
        "file system",
        "NAT gateway",
        "bucket",
        "stack",
        "schedule",
    }
    assert run("down", file, "--yes") == 0
    assert "nothing of llama is left in us-west-2" in capsys.readouterr().out
    assert left(account) == []
    assert [vpc for vpc in account.client("ec2").describe_vpcs()["Vpcs"] if not vpc["IsDefault"]] == []


def test_the_switch_is_set_before_anything_that_bills(file, moto):
    assert run("up", file, "--yes") == 0
    calls = moto.calls()
    first_stack = calls.index("cloudformation:CreateStack")
    billing = [calls.index(call) for call in ("ec2:RunInstances", "fsx:CreateFileSystem") if call in calls]
    assert billing
    assert first_stack < min(billing)
    puts = [number for number, call in enumerate(calls) if call.startswith("s3:PUT")]
    assert first_stack < puts[0]
    schedule = Account("us-west-2").client("scheduler").get_schedule(Name="kitae-llama-switch")
    assert schedule["State"] == "ENABLED"


def test_the_configuration_names_what_was_made(file, account, tmp_path):
    import yaml

    run("up", file, "--yes")
    config = yaml.safe_load((tmp_path / "cluster.pcluster.yaml").read_text("utf-8"))
    out = find_stack(account, "kitae-llama-network").outputs
    assert config["HeadNode"]["Networking"]["SubnetId"] == out["PublicSubnet"]
    assert config["Scheduling"]["SlurmQueues"][0]["Networking"]["SecurityGroups"] == [out["NodesGroup"]]
    script = config["HeadNode"]["CustomActions"]["OnNodeConfigured"]["Sequence"][0]
    bucket, _, key = script["Script"].removeprefix("s3://").partition("/")
    assert (
        account.client("s3")
        .get_object(Bucket=bucket, Key=key)["Body"]
        .read()
        .startswith(b"#!/usr/bin/env bash")
    )
    [wheel] = [one.partition("/")[2] for one in _urls(script["Args"], "wheel")]
    assert account.client("s3").head_object(Bucket=bucket, Key=wheel)["ContentLength"] > 10_000


def test_a_dry_run_makes_nothing(file, engine, account, moto, capsys):
    assert run("up", file, "--dry-run") == 0
    said = capsys.readouterr().out
    assert "Request would have succeeded" in said
    assert said.index("1. the switch") < said.index("4. the cluster llama")
    assert left(account) == []
    assert not [call for call in moto.calls() if ":Create" in call or ":Run" in call or ":PUT" in call]


@pytest.mark.parametrize("verb", ["up", "down", "start", "stop"])
def test_without_yes_nobody_there_is_a_no(verb, file, engine, moto, account, capsys):
    """No call that makes or deletes without the plan having been shown, and agreed to."""
    assert run(verb, file) == 2
    assert "--yes says so beforehand" in capsys.readouterr().err
    changing = ("Create", "Delete", "Run", "Terminate", "PUT", "DELETE", "Update")
    assert not [call for call in moto.calls() if any(word in call for word in changing)]
    assert not [asked for asked in engine.asked if asked.startswith(("create", "delete", "update"))]


def test_a_second_up_makes_nothing_twice(file, engine, moto):
    assert run("up", file, "--yes") == 0
    stacks = moto.calls().count("cloudformation:CreateStack")
    assert run("up", file, "--yes") == 0
    assert moto.calls().count("cloudformation:CreateStack") == stacks
    assert len([asked for asked in engine.asked if asked.startswith("create-cluster")]) == 1


def test_a_stack_of_somebody_else_is_neither_taken_nor_armed_against(file, account, moto, capsys):
    body = json.dumps({"Resources": {"T": {"Type": "AWS::SNS::Topic"}}})
    account.client("cloudformation").create_stack(StackName=MINE, TemplateBody=body)
    assert run("up", file, "--yes") == 8
    assert "a stack llama is there (CREATE_COMPLETE) that is no cluster" in capsys.readouterr().err
    assert find_stack(account, "kitae-llama-switch") is None
    assert run("down", file, "--yes") == 0
    assert find_stack(account, MINE) is not None


@pytest.mark.parametrize("spent", ["over", "at rest"])
def test_a_switch_of_an_earlier_cluster_is_set_anew(spent, file, account, capsys):
    """Else the new cluster would be ended at once, or never."""
    end = datetime.now(timezone.utc) + timedelta(hours=-1 if spent == "over" else 1)
    template = switch_template(Scope(MINE, "us-west-2", "123456789012"), end, {})
    make_stack(account, "kitae-llama-switch", template, {}, print)
    if spent == "at rest":
        account.client("scheduler").delete_schedule(Name="kitae-llama-switch")
    assert run("up", file, "--yes") == 0
    assert "that of an earlier cluster goes first" in capsys.readouterr().err
    until = find_stack(account, "kitae-llama-switch").outputs["Until"]
    assert datetime.fromisoformat(until.replace("Z", "+00:00")) > end + timedelta(hours=10)
    assert account.client("scheduler").get_schedule(Name="kitae-llama-switch")["State"] == "ENABLED"


def test_a_cluster_that_cannot_be_made_says_the_first_real_reason_and_what_bills(file, engine, capsys):
    """Row 41."""
    engine.play(create_fails="We currently do not have sufficient trn1.32xlarge capacity")
    assert run("up", file, "--yes") == 8
    said = capsys.readouterr().err
    assert (
        "HeadNode CREATE_FAILED We currently do not have sufficient trn1.32xlarge capacity; it cost about $"
        in said
    )
    assert "kitae cluster down takes it away" in said


@pytest.mark.parametrize(("failures", "found"), [(4, True), (5, False)])
def test_answers_that_fail_for_a_while_do_not_end_the_wait(failures, found, engine, monkeypatch):
    """A connection that goes away for a minute, of half an hour."""
    engine.know(MINE)
    real, left = engine.answer, iter(range(failures))

    def answer(words: list[str]) -> tuple[int, dict[str, object]]:
        if words[0] == "describe-cluster" and next(left, None) is not None:
            return 1, {"message": "Could not connect to the endpoint URL"}
        return real(words)

    monkeypatch.setattr(engine, "answer", answer)
    clusters = Clusters(engine, "us-west-2")
    if found:
        assert clusters.look(MINE, lambda: None) is not None
        return
    with pytest.raises(ClusterError, match="Could not connect"):
        clusters.look(MINE, lambda: None)


def test_a_delete_that_fails_once_is_done_again(file, engine, account, capsys, tmp_path):
    """T53, rows 3 and 17."""
    stand(engine, tmp_path)
    engine.play(delete_fails=1)
    assert run("down", file, "--yes") == 0
    assert "again, attempt 2 of 3" in capsys.readouterr().err
    assert left(account) == []


def test_orphans_are_found_by_tag_and_taken_away(file, engine, account, capsys, tmp_path):
    """T53: an instance that outlived its stack, and a volume that was kept."""
    stand(engine, tmp_path)
    engine.play(leaks=["instance", "volume"])
    assert run("down", file, "--yes") == 0
    said = capsys.readouterr().err
    assert "left over: instance i-" in said
    assert "left over: volume vol-" in said
    assert left(account) == []


def test_what_never_goes_is_listed_with_price_and_command_and_the_switch_stays(
    file, engine, account, moto, capsys
):
    """T53: a fake that never deletes."""
    run("up", file, "--yes")
    engine.play(delete_fails=99)
    moto.refuse("ec2:TerminateInstances", 99)
    assert run("down", file, "--yes") == 8
    said = capsys.readouterr().err
    assert "things of llama are left, which bill $" in said
    assert (
        "(c5.4xlarge, running): $0.68 an hour; aws --region us-west-2 ec2 terminate-instances --instance-"
        in said
    )
    assert "llama does not go: CleanupResources DELETE_FAILED the function does not answer" in said
    assert find_stack(account, "kitae-llama-switch") is not None


def test_a_delete_that_is_stuck_ends_loudly_and_its_machines_stop_billing(
    file, engine, account, monkeypatch, capsys, tmp_path
):
    stand(engine, tmp_path)
    engine.play(stuck=True, polls=0)
    monkeypatch.setattr("kitae.cluster.down.PATIENCE_S", 0.0)
    run("down", file, "--yes")
    assert "has been DELETE_IN_PROGRESS for" in capsys.readouterr().err
    assert not [one for one in scan(account, MINE) if one.kind.name == "instance"]


def test_down_needs_no_file(file, engine, account, tmp_path, monkeypatch):
    stand(engine, tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert run("down", MINE, "--region", "us-west-2", "--yes") == 0
    assert left(account) == []


def test_down_of_what_is_not_there_is_done(file, engine, capsys):
    assert run("down", file, "--yes") == 0
    assert "nothing of llama is left" in capsys.readouterr().out


def test_others_are_left_alone(file, engine, account, tmp_path):
    stand(engine, tmp_path)
    ec2 = account.client("ec2")
    image = ec2.describe_images()["Images"][0]["ImageId"]
    tags = [
        {"ResourceType": "instance", "Tags": [{"Key": "parallelcluster:cluster-name", "Value": "llama-2"}]}
    ]
    ec2.run_instances(
        ImageId=image, MinCount=1, MaxCount=1, InstanceType="c5.4xlarge", TagSpecifications=tags
    )
    run("down", file, "--yes")
    assert [one.kind.name for one in scan(account, "llama-2")] == ["instance"]
    assert left(account) == []


def test_storage_that_is_to_be_kept_is_kept_and_told(engine, account, tmp_path, capsys):
    file = str(write_cluster(tmp_path, GOOD.replace("size_gb: 1200", "size_gb: 1200\n  at_down: keep")))
    run("up", file, "--yes")
    kept = account.client("fsx").describe_file_systems()["FileSystems"][0]["FileSystemId"]
    engine.play(leaks=["fsx"])
    assert run("down", file, "--yes") == 0
    said = capsys.readouterr().out
    assert f"kept, as the file says: file system {kept}" in said
    assert "nothing else of llama is left" in said


def test_what_is_to_be_saved_is_saved_first(engine, moto, tmp_path, capsys):
    text = GOOD.replace("limits:\n", "save: [{from_folder: /fsx/runs, to: 's3://results/x'}]\nlimits:\n")
    file = str(write_cluster(tmp_path, text))
    stand(engine, tmp_path)
    assert run("down", file, "--yes") == 0
    assert "saving /fsx/runs to s3://results/x" in capsys.readouterr().err
    assert "ssm:SendCommand" in moto.calls()


def test_what_was_not_saved_is_not_deleted(engine, moto, account, tmp_path, capsys):
    text = GOOD.replace("limits:\n", "save: [{from_folder: /fsx/runs, to: 's3://results/x'}]\nlimits:\n")
    file = str(write_cluster(tmp_path, text))
    stand(engine, tmp_path)
    moto.refuse("ssm:SendCommand", 1)
    before = left(account)
    assert run("down", file, "--yes") == 8
    assert left(account) == before
    assert run("down", file, "--yes", "--without-saving") == 0
    assert left(account) == []


def test_what_cannot_be_saved_is_not_deleted(engine, moto, account, tmp_path, capsys):
    """The head node is gone, and the file system with what was to be saved is there."""
    text = GOOD.replace("limits:\n", "save: [{from_folder: /fsx/runs, to: 's3://results/x'}]\nlimits:\n")
    file = str(write_cluster(tmp_path, text))
    fsx = account.client("fsx")
    subnet = account.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
    tags = [{"Key": "parallelcluster:cluster-name", "Value": MINE}]
    fsx.create_file_system(FileSystemType="LUSTRE", StorageCapacity=1200, SubnetIds=[subnet], Tags=tags)
    assert run("down", file, "--yes") == 8
    assert "/fsx/runs of llama cannot be saved: there is no head node" in capsys.readouterr().err
    assert len(left(account)) == 1
    assert run("down", file, "--yes", "--without-saving") == 0
    assert left(account) == []


def test_by_name_alone_the_account_knows_what_is_saved_and_kept(
    engine, account, moto, tmp_path, capsys, monkeypatch
):
    """From another machine, without the file."""
    text = GOOD.replace("limits:\n", "save: [{from_folder: /fsx/runs, to: 's3://results/x'}]\nlimits:\n")
    text = text.replace("size_gb: 1200", "size_gb: 1200\n  at_down: keep")
    assert run("up", str(write_cluster(tmp_path, text)), "--yes") == 0
    engine.play(leaks=["fsx"])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert run("down", MINE, "--region", "us-west-2", "--yes") == 0
    said = capsys.readouterr()
    assert "saving /fsx/runs to s3://results/x" in said.err
    assert "kept, as the file says: file system fs-" in said.out
    assert len(account.client("fsx").describe_file_systems()["FileSystems"]) == 1


def test_status_tells_what_stands_and_when_it_ends(file, engine, capsys):
    run("up", file, "--yes")
    capsys.readouterr()
    assert run("status", file) == 0
    said = capsys.readouterr().out
    assert "switch    CREATE_COMPLETE (stack kitae-llama-switch)" in said
    assert "c5.4xlarge, running  $0.68 an hour" in said
    assert "AWS ends it from 20" in said


def test_status_of_nothing(file, engine, capsys):
    assert run("status", MINE, "--region", "us-west-2") == 0
    said = capsys.readouterr().out
    assert said.count("is not there") == 3


@pytest.mark.parametrize("words", [["status", MINE], ["down", MINE, "--yes"], ["leftovers"], ["list"]])
def test_a_region_that_is_none_is_refused_before_it_is_asked(words, engine, moto, capsys):
    assert run(*words, "--region", "us-wset-2") == 2
    assert "no region is called 'us-wset-2'" in capsys.readouterr().err
    assert moto.calls() == []


@pytest.mark.parametrize(("verb", "where", "words"), [
    ("up", "kitae.cluster.up.follow", "llama goes on being made, and bills: the same command goes on"),
    ("down", "kitae.cluster.down._delete_cluster", "what is left of llama bills on; the same command"),
    ("start", "kitae.cluster.fleet.FleetWatch.look", "machines of llama go on starting, and bill"),
])  # fmt: skip
def test_who_stops_waiting_is_told_what_goes_on(verb, where, words, engine, tmp_path, monkeypatch, capsys):
    text = GOOD.replace("max: 4", "max: 4\n    min: 1").replace("1100", "1100\n  idle_stop: null")
    file = str(write_cluster(tmp_path, text))
    if verb == "start":
        engine.know(MINE)

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, stopped)
    assert run(verb, file, "--yes") == 130
    assert words in capsys.readouterr().err


def test_a_number_of_an_account_has_twelve_digits(file, capsys):
    assert run("policy", file, "--account", "12") == 2
    assert "it has 12 digits" in capsys.readouterr().err


def test_a_name_needs_its_region(engine, capsys):
    assert run("status", MINE) == 2
    assert "--region" in capsys.readouterr().err


def test_leftovers_finds_clusters_that_kitae_did_not_make(engine, account, capsys):
    assert run("leftovers") == 0
    ec2 = account.client("ec2")
    image = ec2.describe_images()["Images"][0]["ImageId"]
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "parallelcluster:cluster-name", "Value": "other"}]}]
    ec2.run_instances(
        ImageId=image, MinCount=1, MaxCount=1, InstanceType="trn1.32xlarge", TagSpecifications=tags
    )
    assert run("leftovers") == 8
    said = capsys.readouterr()
    assert "instance i-" in said.out
    assert "$21.50 an hour" in said.out
    assert "of any cluster are in us-west-2; they bill $21.50 an hour" in said.err
    assert run("leftovers", "--name", "another") == 0


def test_stop_and_start(file, engine, tmp_path):
    stand(engine, tmp_path)
    assert run("stop", file, "--yes") == 0
    assert run("start", file, "--yes") == 0
    statuses = [
        asked.rpartition(" ")[2] for asked in engine.asked if asked.startswith("update-compute-fleet")
    ]
    assert statuses == ["STOP_REQUESTED", "START_REQUESTED"]


@pytest.mark.parametrize(
    ("thing", "mine"),
    [
        ("kitae-llama-switch", True),
        ("kitae-llama-network", True),
        ("/aws/parallelcluster/llama-202612011030", True),
        ("/aws/parallelcluster/llama-2-202612011030", False),
        ("kitae-llama-switch-network", False),
        ("kitae-llama-2-network", False),
        ("llama", False),
    ],
)
def test_names_of_another_cluster_that_begin_alike_are_not_mine(thing, mine):
    assert belongs(Thing(thing, "us-west-2"), MINE) is mine
