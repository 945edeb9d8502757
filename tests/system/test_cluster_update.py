"""A cluster that is changed: ParallelCluster's own policies, and a change that is killed and gone on with."""

from __future__ import annotations

import os
import signal
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from cluster_case import GOOD, loaded, write_cluster
from moto_server_fixtures import BEFORE_CALL, engine, moto, moto_process
from pcluster_made import stand
from pcluster_policies import rows_of
from pcluster_real import real
from pcluster_standin import StandIn

from kitae.cli.main import main
from kitae.cluster.aws import Account
from kitae.cluster.config import PLACEHOLDER, config_of
from kitae.cluster.kept import change_begun, kept
from kitae.cluster.stacks import find_stack

__all__ = ["engine", "moto", "moto_process", "real"]  # fixtures


CHANGES = {
    "more": ["queues.0.max=8"],
    "fewer": ["queues.0.max=2"],
    "always on": ["queues.0.min=2"],
    "always on, and more": ["queues.0.min=2", "queues.0.max=6"],
    "type": ["queues.0.instance=trn1n.32xlarge"],
    "disk": ["queues.0.disk_gb=300"],
    "placement": ["queues.0.placement_group=false"],
    "spot": ["queues.0.capacity.kind=spot"],
    "idle": ["limits.idle_stop='30 minutes'"],
    "scaling": ["scaling=best-effort"],
    "no storage": ["fsx=null"],
    "larger storage": ["fsx.size_gb=2400"],
    "kept storage": ["fsx.at_down=keep"],
    "mount": ["fsx.mount=/data"],
    "import": ["fsx.import_from='s3://corpus/a'"],
    "head": ["head.instance=c5.9xlarge", "head.disk_gb=100"],
    "key": ["head.ssh_key=other"],
    "image": ["image.ami=ami-0123456789abcdef0"],
    "save": ["save=[{from_folder: /fsx/a, to: 's3://results/a'}]"],
    "tags": ["tags={team: mine}"],
    "scripts": ["bootstrap={nodes: ['s3://scripts/b.sh']}"],
    "subnet": [
        "network={public_subnet: subnet-00000003, private_subnet: subnet-00000004, "
        "security_groups: [sg-00000003]}"
    ],
    "two queues": [
        "queues=[{name: train, instance: trn1.32xlarge, max: 4}, {name: two, instance: trn1.2xlarge, max: 1}]"
    ],
}


def without_why(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    keys = ("parameter", "policy", "allowed", "allowed_stopped")
    return sorted(tuple(str(row[key]) for key in keys) for row in rows)


def config_after(folder: Path, changes: list[str]) -> dict[str, Any]:
    from dataclasses import replace

    file = loaded(folder, *changes).file
    network = file.network
    if network.public_subnet is None:
        return config_of(file, PLACEHOLDER)
    subnets = {"public_subnet": network.public_subnet, "private_subnet": network.private_subnet}
    return config_of(file, replace(PLACEHOLDER, **subnets, groups=tuple(network.security_groups)))


def test_the_stand_in_judges_as_parallelclusters_policies_do(real, tmp_path):
    old = config_of(loaded(tmp_path).file, PLACEHOLDER)
    targets = {name: config_after(tmp_path, changes) for name, changes in CHANGES.items()}
    found = real.update_rows("llama", old, targets)
    assert {name: without_why(rows) for name, rows in found.items()} == {
        name: without_why(rows_of(old, target)) for name, target in targets.items()
    }


def killed_at(words: list[str], call: int, engine: StandIn) -> bool:
    """Run a command in a child that is killed with -9 at its so-manieth call, of AWS or ParallelCluster."""
    child = os.fork()
    if child == 0:
        left = iter(range(call))

        def count() -> None:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        asked = engine.run
        engine.run = lambda *words: (count(), asked(*words))[1]
        BEFORE_CALL.append(count)
        os._exit(main(words))
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


CHANGED = GOOD.replace("max: 4", "max: 2").replace("203.0.113.7/32", "198.51.100.0/24")


@pytest.mark.parametrize("call", [4, 10, 16, 19, 22, 24, 25, 26, 27, 28, 30, 31, 32, 33, 34])
def test_an_update_that_was_killed_is_gone_on_with_from_elsewhere(engine, call, tmp_path):
    """State lives in the account: the fleet starts again, though another process stopped it."""
    path = write_cluster(tmp_path)
    assert main(["cluster", "up", str(path), "--yes"]) == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for folder in (tmp_path, elsewhere):
        (folder / "cluster.yaml").write_text(CHANGED.replace("  until: 12 hours", "  until: 11 hours"))
    words = ["cluster", "update", str(path), "--yes", "--stop-fleet"]
    assert killed_at(words, call, engine)
    again = ["cluster", "update", str(elsewhere / "cluster.yaml"), "--yes", "--stop-fleet"]
    assert main(again) == 0
    account = Account("us-west-2")
    assert kept(account, "llama").queues[0].max == 2
    assert change_begun(account, "llama") == {}
    fleet = [one for one in engine.asked if one.startswith("update-compute-fleet")]
    assert fleet[-1].endswith("START_REQUESTED")
    assert len([one for one in engine.asked if one.startswith("update-cluster") and "dryrun" not in one]) == 1
    group = find_stack(account, "kitae-llama-network").outputs["SshGroup"]
    [found] = account.client("ec2").describe_security_groups(GroupIds=[group])["SecurityGroups"]
    assert [one["CidrIp"] for rule in found["IpPermissions"] for one in rule["IpRanges"]] == [
        "198.51.100.0/24"
    ]


# moto has no type of keys, and takes no launch template with a machine's own disks.
LEFT_OUT = ("KeyPairValidator", "HeadNodeLaunchTemplateValidator", "ComputeResourceLaunchTemplateValidator")
SUPPRESSED = [word for one in LEFT_OUT for word in ("--suppress", one)]


@pytest.fixture
def real_cluster(real, moto, tmp_path, monkeypatch) -> Path:
    """A cluster that ParallelCluster's own command line takes for one that stands."""
    from kitae.cluster.up import Build, prepare, set_switch

    monkeypatch.setenv("KITAE_PCLUSTER", str(real.folder))
    account = Account("us-west-2")
    account.client("ec2").create_key_pair(KeyName="my-key")
    path = write_cluster(tmp_path)
    file = loaded(tmp_path).file
    build = Build(account, real, file, path, datetime.now(timezone.utc), print)
    set_switch(build)
    stand(account, config_of(file, prepare(build)))
    return path


def test_parallelclusters_own_dry_run_and_validators_are_heard(real_cluster, capsys):
    path = real_cluster
    path.write_text(GOOD.replace("max: 4", "max: 8"))
    assert main(["cluster", "update", str(path), "--dry-run"]) == 8
    assert "ParallelCluster refuses the change of llama: " in capsys.readouterr().err
    assert main(["cluster", "update", str(path), "--dry-run", *SUPPRESSED]) == 0
    said = capsys.readouterr().out
    assert "queues.train.max: 4 -> 8  [live]" in said
    assert "ParallelCluster's dry run: it would be done; 1 of its keys change" in said
    path.write_text(GOOD.replace("max: 4", "max: 2"))
    assert main(["cluster", "update", str(path), "--dry-run", *SUPPRESSED]) == 0
    said = capsys.readouterr().out
    assert "queues.train.max: 4 -> 2  [needs the fleet stopped]" in said
    assert (
        "once the fleet is stopped:\n  Scheduling.SlurmQueues[train].ComputeResources[trn1-32xlarge].MaxCount"
        in said
    )
