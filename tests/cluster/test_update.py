"""`kitae cluster update` against moto and ParallelCluster played: the difference, the money, the change."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from cluster_case import GOOD, write_cluster

from kitae.cli.main import main
from kitae.cluster.aws import Account
from kitae.cluster.kept import change_begun, kept
from kitae.cluster.pins import Pins
from kitae.cluster.stacks import find_stack

MINE = "llama"


@pytest.fixture
def account(moto) -> Account:
    return Account("us-west-2")


@pytest.fixture
def made(engine, tmp_path, capsys) -> Path:
    """A cluster that stands, and its file."""
    path = write_cluster(tmp_path)
    assert main(["cluster", "up", str(path), "--yes"]) == 0
    capsys.readouterr()
    return path


def other(path: Path, *changes: tuple[str, str], text: str = GOOD) -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    return str(path)


def run(*words: str) -> int:
    return main(["cluster", "update", *words])


def asked(engine, verb: str) -> list[str]:
    return [one for one in engine.asked if one.startswith(verb)]


def test_nothing_to_change_is_said_and_nothing_is_called(made, engine, moto, capsys):
    before = moto.calls()
    assert run(str(made), "--yes") == 0
    assert "llama is what" in capsys.readouterr().out
    assert not [call for call in moto.calls()[len(before) :] if "Update" in call or "PUT" in call]
    assert asked(engine, "update-cluster") == []


def test_more_machines_are_live_and_the_money_is_told_before_and_after(made, engine, account, capsys):
    file = other(made, ("max: 4", "max: 8"), ("max_cost_usd: 1100", "max_cost_usd: 2200"))
    assert run(file, "--yes") == 0
    said = capsys.readouterr().out
    assert "queues.train.max: 4 -> 8  [live]" in said
    [row] = [line.split() for line in said.splitlines() if line.startswith("an hour with all queues full")]
    assert row[-2:] == ["$86.96", "$172.96"]
    assert "a month of what stays on while idle" in said
    assert "ParallelCluster's dry run: it would be done; 1 of its keys change" in said
    assert kept(account, MINE).queues[0].max == 8
    config = engine._state()["clusters"][MINE]["config"]
    assert config["Scheduling"]["SlurmQueues"][0]["ComputeResources"][0]["MaxCount"] == 8


def test_the_dry_run_changes_nothing(made, engine, moto, account, capsys):
    before = moto.calls()
    assert run(other(made, ("max: 4", "max: 8")), "--dry-run") == 0
    assert "[live]" in capsys.readouterr().out
    assert kept(account, MINE).queues[0].max == 4
    assert [one.rpartition(" ")[2] for one in asked(engine, "update-cluster")] == ["true"]
    changing = ("Create", "Update", "Delete", "Run", "PUT", "DELETE")
    assert not [call for call in moto.calls()[len(before) :] if any(word in call for word in changing)]


def test_without_yes_nobody_there_is_a_no(made, engine, moto, capsys):
    before = moto.calls()
    assert run(other(made, ("max: 4", "max: 8"))) == 2
    said = capsys.readouterr()
    assert "queues.train.max: 4 -> 8" in said.out
    assert "--yes says so beforehand" in said.err
    assert not [call for call in moto.calls()[len(before) :] if "Update" in call or "PUT" in call]


def test_the_switch_is_moved_before_machines_that_bill(made, moto):
    begun = len(moto.calls())
    file = other(made, ("    max: 4", "    min: 1\n    max: 8"), ("limits:", "limits:\n  idle_stop: null"))
    assert run(file, "--yes", "--stop-fleet") == 0
    calls = moto.calls()[begun:]
    assert calls.index("cloudformation:UpdateStack") < calls.index("ec2:RunInstances")


def test_where_the_money_does_not_last_the_switch_goes_to_when_it_is_used_up(made, account, capsys):
    """With 8 machines it is $172.96 an hour: $1,100 last six hours and a little, not twelve."""
    now = datetime.now(timezone.utc)
    assert run(other(made, ("max: 4", "max: 8")), "--yes") == 0
    said = capsys.readouterr().out
    assert "the rest is used up at" in said
    schedule = account.client("scheduler").get_schedule(Name="kitae-llama-switch")
    hours = (schedule["StartDate"] - now).total_seconds() / 3600
    assert hours == pytest.approx(1100 / 172.955, abs=0.05)
    out = find_stack(account, "kitae-llama-switch").outputs
    assert out["MaxCostUsd"] == "1100"
    assert out["Wanted"] > out["Until"]


def test_fewer_machines_need_the_fleet_stopped_and_it_starts_again(made, engine, account, capsys):
    file = other(made, ("max: 4", "max: 2"))
    assert run(file, "--yes") == 2
    assert "--stop-fleet says so beforehand" in capsys.readouterr().err
    assert asked(engine, "update-compute-fleet") == []
    assert run(file, "--yes", "--stop-fleet") == 0
    said = capsys.readouterr()
    assert "queues.train.max: 4 -> 2  [needs the fleet stopped] its jobs end" in said.out
    assert [one.rpartition(" ")[2] for one in asked(engine, "update-compute-fleet")] == [
        "STOP_REQUESTED",
        "START_REQUESTED",
    ]
    assert change_begun(account, MINE) == {}


def test_a_queue_of_another_type_is_replaced(made, capsys):
    assert (
        run(
            other(
                made,
                ("trn1.32xlarge", "trn1n.32xlarge"),
                ("limits:", "prices: {trn1n.32xlarge: 24.78}\nlimits:"),
            ),
            "--dry-run",
        )
        == 0
    )
    assert (
        "queues.train.instance: trn1.32xlarge -> trn1n.32xlarge  [needs the fleet stopped]"
        in capsys.readouterr().out
    )


def test_disks_of_nodes_are_replaced_while_jobs_end(made, capsys):
    assert run(other(made, ("    max: 4", "    max: 4\n    disk_gb: 300")), "--dry-run") == 0
    assert (
        "queues.train.disk_gb: 200 -> 300  [replaces nodes] each node once its job ends"
        in capsys.readouterr().out
    )


def test_storage_goes_only_where_the_name_was_typed(made, engine, account, capsys):
    """Row 40: ParallelCluster itself would do it without a word."""
    file = other(made, ("fsx:\n  size_gb: 1200\n", ""))
    assert run(file, "--yes") == 2
    said = capsys.readouterr()
    assert "[would delete data] all that lies in /fsx is deleted" in said.out
    assert "--delete-data llama agrees beforehand" in said.err
    assert run(file, "--yes", "--delete-data", "lama") == 2
    assert len(account.client("fsx").describe_file_systems()["FileSystems"]) == 1
    assert run(file, "--yes", "--delete-data", MINE) == 0
    assert account.client("fsx").describe_file_systems()["FileSystems"] == []


def test_what_is_saved_is_saved_before_storage_goes(engine, moto, tmp_path, capsys):
    text = GOOD.replace("limits:\n", "save: [{from_folder: /fsx/runs, to: 's3://results/x'}]\nlimits:\n")
    path = write_cluster(tmp_path, text)
    assert main(["cluster", "up", str(path), "--yes"]) == 0
    file = other(
        path,
        ("fsx:\n  size_gb: 1200\n", ""),
        ("save: [{from_folder: /fsx/runs, to: 's3://results/x'}]\n", ""),
        text=text,
    )
    assert run(file, "--yes", "--delete-data", MINE) == 0
    assert "saving /fsx/runs to s3://results/x" in capsys.readouterr().err
    calls = moto.calls()
    assert calls.index("ssm:SendCommand") < calls.index("fsx:DeleteFileSystem")


def given_network(account: Account, *groups: str) -> str:
    subnets = [one["SubnetId"] for one in account.client("ec2").describe_subnets()["Subnets"][:2]]
    listed = ", ".join(groups)
    return (
        f"network: {{public_subnet: {subnets[0]}, private_subnet: {subnets[1]}, security_groups: [{listed}], "
        "security_group_self_rule: true}\nlimits:"
    )


@pytest.mark.parametrize("with_storage", [True, False])
def test_another_security_group_beside_managed_storage(with_storage, engine, account, tmp_path, capsys):
    """T54, row 40."""
    base = GOOD if with_storage else GOOD.replace("fsx:\n  size_gb: 1200\n", "")
    one = given_network(account, "sg-00000000000000001")
    two = given_network(account, "sg-00000000000000002")
    path = write_cluster(tmp_path, base.replace("limits:", one))
    assert main(["cluster", "up", str(path), "--yes"]) == 0
    file = other(path, ("limits:", two), text=base)
    assert run(file, "--yes") == (2 if with_storage else 0)
    said = capsys.readouterr()
    assert ("[would delete data]" in said.out) is with_storage
    if with_storage:
        assert "--delete-data llama" in said.err
        assert run(file, "--yes", "--delete-data", MINE) == 0


def test_another_subnet_of_the_nodes_would_delete_managed_storage(engine, account, tmp_path, capsys):
    """T54: ParallelCluster refuses it unless it is forced; the file system is another then."""
    text = GOOD.replace("limits:", given_network(account, "sg-00000000000000001"))
    path = write_cluster(tmp_path, text)
    assert main(["cluster", "up", str(path), "--yes"]) == 0
    before = account.client("fsx").describe_file_systems()["FileSystems"][0]["FileSystemId"]
    subnets = account.client("ec2").describe_subnets()["Subnets"]
    file = other(path, (subnets[1]["SubnetId"] + ",", subnets[2]["SubnetId"] + ","), text=text)
    assert run(file, "--yes") == 2
    assert "network.private_subnet" in capsys.readouterr().out
    assert run(file, "--yes", "--delete-data", MINE) == 0
    assert "--force-update true" in asked(engine, "update-cluster")[-1]
    assert account.client("fsx").describe_file_systems()["FileSystems"][0]["FileSystemId"] != before


@pytest.mark.parametrize(
    ("old", "new", "key", "way_out"),
    [
        ("size_gb: 1200", "size_gb: 2400", "fsx.size_gb", "give it up with fsx: null"),
        (
            "  ssh_key",
            "  instance: c5.9xlarge\n  ssh_key",
            "head.instance",
            "then kitae cluster up makes it so",
        ),
        ("  ssh_key", "  disk_gb: 100\n  ssh_key", "head.disk_gb", "/home lies on it"),
        ("limits:", "network: {cidr: 10.61.0.0/16}\nlimits:", "network.cidr", "its subnets hold machines"),
        ("limits:", "bootstrap: {python: kitae}\nlimits:", "bootstrap.python", "by kitae cluster ssh"),
        (
            "limits:",
            "image: {ami: ami-0123456789abcdef0}\nlimits:",
            "image.ami",
            "a head node stays as it was",
        ),
    ],
)
def test_what_cannot_be_changed_is_refused_with_the_way_out(old, new, key, way_out, made, engine, capsys):
    extra = [("limits:", "prices: {c5.9xlarge: 1.53}\nlimits:")] if "c5.9" in new else []
    assert run(other(made, (old, new), *extra), "--yes") == 2
    said = capsys.readouterr()
    assert "[cannot be done]" in said.out
    assert f"{key}: write the old value again, or: " in said.err
    assert way_out in said.err
    assert asked(engine, "update-cluster") == []


def test_who_may_come_in_is_changed_in_the_network(made, account, engine):
    assert run(other(made, ("203.0.113.7/32", "198.51.100.0/24")), "--yes") == 0
    group = find_stack(account, "kitae-llama-network").outputs["SshGroup"]
    [found] = account.client("ec2").describe_security_groups(GroupIds=[group])["SecurityGroups"]
    ranges = [one["CidrIp"] for rule in found["IpPermissions"] for one in rule["IpRanges"]]
    assert ranges == ["198.51.100.0/24"]
    assert asked(engine, "update-cluster") == []


def test_a_change_that_fails_says_the_first_error_and_that_all_is_as_it_was(made, engine, account, capsys):
    engine.play(update_fails="no capacity")
    file = other(made, ("max: 4", "max: 2"))
    assert run(file, "--yes", "--stop-fleet") == 8
    said = capsys.readouterr().err
    assert (
        "llama could not be changed (UPDATE_FAILED), and is as it was: HeadNode UPDATE_FAILED no capacity"
        in said
    )
    assert "kitae cluster start llama" in said
    assert kept(account, MINE).queues[0].max == 4
    engine.play()
    assert run(file, "--yes") == 0
    assert asked(engine, "update-compute-fleet")[-1].endswith("START_REQUESTED")
    assert kept(account, MINE).queues[0].max == 2


def test_scripts_of_another_kitae_change_nothing(made, engine, monkeypatch, capsys):
    """A newer kitae has other scripts and pins; the cluster keeps its own."""
    monkeypatch.setattr("kitae.cluster.config.pins_of", lambda sdk: Pins((), ("torch==9",)))
    assert run(other(made, ("max: 4", "max: 8")), "--dry-run") == 0
    assert "1 of its keys change" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["missing.yaml"], 2, "there is no such file"),
        ([], 2, "Missing argument"),
    ],
)
def test_wrong_words(words, code, said, engine, capsys):
    assert run(*words) == code
    assert said in capsys.readouterr().err


def test_a_cluster_that_is_not_there(engine, tmp_path, capsys):
    assert run(str(write_cluster(tmp_path)), "--yes") == 8
    assert "no cluster llama of kitae is in us-west-2" in capsys.readouterr().err


def test_up_with_another_file_is_refused_and_leads_to_update(made, engine, capsys):
    file = other(made, ("max: 4", "max: 8"), ("max_cost_usd: 1100", "max_cost_usd: 2200"))
    assert main(["cluster", "up", file, "--yes"]) == 2
    said = capsys.readouterr().err
    assert "llama is there, made of another file: queues.train.max: 4 -> 8; kitae cluster update" in said
    assert len(asked(engine, "create-cluster")) == 1


def test_a_file_that_was_changed_before_the_cluster_was_made_is_the_one_that_is_kept(
    engine, account, tmp_path
):
    path = write_cluster(tmp_path)
    engine.run = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)  # stopped where ParallelCluster begins
    assert main(["cluster", "up", str(path), "--yes"]) == 130
    del engine.run
    assert kept(account, MINE).queues[0].max == 4
    assert main(["cluster", "up", other(path, ("max: 4", "max: 2")), "--yes"]) == 0
    assert kept(account, MINE).queues[0].max == 2


def test_ctrl_c_is_quiet_and_the_same_command_goes_on(made, engine, account, monkeypatch, capsys):
    file = other(made, ("max: 4", "max: 2"))

    def stopped(_: float) -> None:
        raise KeyboardInterrupt

    engine.play(polls=3)
    monkeypatch.setattr("kitae.cluster.changing.time.sleep", stopped)
    assert run(file, "--yes", "--stop-fleet") == 130
    assert capsys.readouterr().err.endswith("interrupted\n")
    monkeypatch.undo()


def test_a_cluster_that_aws_is_ending_is_neither_changed_nor_extended(made, account, monkeypatch, capsys):
    from kitae.cluster import extend

    ends = extend.ends_of(find_stack(account, "kitae-llama-switch"))
    late = extend.Ends(datetime(2020, 1, 1, tzinfo=timezone.utc), ends.wanted, ends.most_usd, ends.created)
    monkeypatch.setattr(extend, "ends_of", lambda stack: late)
    assert main(["cluster", "extend", str(made), "--until", "+3 hours", "--yes"]) == 8
    assert "AWS has been ending llama since 2020-01-01 00:00 UTC" in capsys.readouterr().err


VERBS = {
    "update": ["FILE", "--yes"],
    "extend": ["FILE", "--until", "3 hours", "--yes"],
    "cost": ["FILE"],
    "ssh": ["FILE"],
    "logs": ["FILE"],
    "list": [],
}


@pytest.mark.parametrize("verb", VERBS)
def test_without_a_login_it_is_one_message(verb, moto, engine, tmp_path, monkeypatch, capsys):
    import boto3

    path = str(write_cluster(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    monkeypatch.setattr(
        Account, "client", lambda self, service, region=None: boto3.client(service, region_name=self.region)
    )
    assert main(["cluster", verb, *(path if word == "FILE" else word for word in VERBS[verb])]) == 8
    said = capsys.readouterr().err
    assert "there is no login to AWS here" in said
    assert said.count("error:") == 1
    assert "Traceback" not in said


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "logs"])
def test_what_is_not_allowed_leads_to_the_policy(verb, moto, engine, tmp_path, capsys):
    path = str(write_cluster(tmp_path))
    for action in ("s3:GET /kitae-llama-123456789012-us-west-2/kitae/cluster.json", "ec2:DescribeRegions"):
        moto.refuse(action, 9)
    moto.refuse("ec2:DescribeInstances", 9)
    assert main(["cluster", verb, *(path if word == "FILE" else word for word in VERBS[verb])]) == 8
    assert "is not allowed; kitae cluster policy prints what is needed" in capsys.readouterr().err
