"""A cluster's life: with ParallelCluster's own command line as far as moto goes, and killed at many points.

Nothing here talks to AWS: every client has moto's address, at this machine, and made-up credentials.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from cluster_case import NOW, loaded, write_cluster
from iam_evaluator import refused
from iam_requests import request_of
from iam_stacks import requests_of
from moto_server import ACCOUNT
from moto_server_fixtures import BEFORE_CALL, engine, moto, moto_process
from pcluster_real import real

from kitae.catalog.aws import fleet_types
from kitae.cli.main import main
from kitae.cluster.aws import Account
from kitae.cluster.config import PLACEHOLDER, Site, config_of
from kitae.cluster.leftovers import scan
from kitae.cluster.pcluster import Engine
from kitae.cluster.policy import Scope, ending_statements, statements
from kitae.cluster.schema import ClusterFile
from kitae.cluster.up import Build, prepare
from kitae.errors import ClusterError

__all__ = ["engine", "moto", "moto_process", "real"]  # fixtures

# moto has no type of keys, and takes no launch template with a machine's own disks.
LEFT_OUT = ("KeyPairValidator", "HeadNodeLaunchTemplateValidator", "ComputeResourceLaunchTemplateValidator")
SUPPRESSED = [word for one in LEFT_OUT for word in ("--suppress", one)]


@pytest.fixture
def account(moto) -> Account:
    ec2 = boto3.client("ec2", region_name="us-west-2")
    ec2.create_key_pair(KeyName="my-key")
    return Account("us-west-2")


@pytest.mark.parametrize("machine", fleet_types(), ids=lambda one: one.name)
def test_the_configuration_for_every_machine_passes_parallelclusters_schema(real, machine, tmp_path):
    changes = [f"queues.0.instance={machine.name}", *([] if machine.efa else ["queues.0.max=1"])]
    file = loaded(tmp_path, *changes).file
    assert real.schema_problems(config_of(file, PLACEHOLDER), file.name) == []


FORMS = {
    "persistent": ["fsx={size_gb: 2400, type: PERSISTENT_2, throughput: 125, import_from: 's3://corpus/a'}"],
    "scratch": [
        "fsx={size_gb: 1200, import_from: 's3://corpus/a', export_to: 's3://corpus/b', at_down: keep}"
    ],
    "given": [
        "network={public_subnet: subnet-01234567, private_subnet: subnet-89abcdef}",
        "head={allow_ssh_from: []}",
    ],
    "spot": ["queues.0.capacity.kind=spot", "limits.idle_stop=null", "fsx=null"],
    "block": [
        "queues.0.capacity={kind: capacity-block, id: cr-0123456789abcdef0, ends: 2026-12-24T11:30Z}",
        "queues.0.min=4",
        "save=[{from_folder: /fsx/a, to: 's3://results/a'}]",
        "image.ami=ami-0123456789abcdef0",
        "bootstrap={head: ['https://host/a.sh'], nodes: ['s3://scripts/b.sh']}",
    ],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_file_passes_its_schema(real, form, tmp_path):
    file = loaded(tmp_path, *FORMS[form]).file
    assert real.schema_problems(config_of(file, PLACEHOLDER), file.name) == []


def test_what_its_schema_refuses_is_told_by_path(real, tmp_path):
    config = config_of(loaded(tmp_path).file, PLACEHOLDER)
    config["Image"]["Os"] = "ubuntu2004"
    config["HeadNode"]["Nothing"] = 1
    assert [one.partition(":")[0] for one in real.schema_problems(config, "x")] == [
        "Image.Os",
        "HeadNode.Nothing",
    ]


def test_init_check_quota_and_a_dry_run_to_would_have_succeeded(
    real, account, moto, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KITAE_PCLUSTER", str(real.folder))
    for code in ("L-2C3B7624", "L-1216C47A", "L-F678F1CE", "L-0263D0A3"):
        moto.answer("servicequotas:GetServiceQuota", {"Quota": {"QuotaCode": code, "Value": 1000}}, code)
    moto.answer("servicequotas:ListRequestedServiceQuotaChangeHistoryByQuota", {"RequestedQuotas": []})
    moto.answer("pricing:GetProducts", {"PriceList": []})
    assert main(["cluster", "init", "--name", "llama"]) == 0
    assert main(["cluster", "check", "cluster.yaml"]) == 0
    assert "left out" not in capsys.readouterr().err
    assert main(["cluster", "quota", "cluster.yaml"]) == 0
    changes = ["--set", "head.ssh_key=my-key", "--set", "head.allow_ssh_from=[203.0.113.7/32]"]
    assert main(["cluster", "up", "cluster.yaml", "--dry-run", *changes, *SUPPRESSED]) == 0
    assert "Request would have succeeded, but DryRun flag is set." in capsys.readouterr().out
    assert scan(account, "llama") == []


def test_what_its_validators_refuse_is_told(real, account, tmp_path, monkeypatch, capsys):
    """With the validators of the account: a key pair that is not there passes only where it is left out."""
    monkeypatch.setenv("KITAE_PCLUSTER", str(real.folder))
    assert main(["cluster", "up", str(write_cluster(tmp_path)), "--dry-run"]) == 8
    assert "ParallelCluster refuses llama: " in capsys.readouterr().err


def test_it_accepts_the_network_and_the_scripts_that_are_really_made(real, account, moto, tmp_path):
    """Its validator of EFA's security groups looks at the groups of the stack."""
    file = loaded(tmp_path).file
    build = Build(account, real, file, tmp_path / "cluster.yaml", NOW, print, LEFT_OUT)
    site = prepare(build)
    path = tmp_path / "made.yaml"
    path.write_text(yaml.safe_dump(config_of(file, site)))
    build.clusters.create(file.name, path, LEFT_OUT, dry_run=True)


SYNTHESIS = """\
import json, sys
from pcluster.models.s3_bucket import S3Bucket
from pcluster.schemas.cluster_schema import ClusterSchema
from pcluster.templates.cdk_builder import CDKTemplateBuilder
name = sys.argv[1]
config = ClusterSchema(cluster_name=name).load(json.load(sys.stdin))
bucket = S3Bucket(name="the-bucket", service_name="s", stack_name=name, artifact_directory="d")
built = CDKTemplateBuilder().build_cluster_template(cluster_config=config, bucket=bucket, stack_name=name)
template, assets = built
print(json.dumps([template, [one.get("content") for one in assets]], default=str))
"""


def interfaces(found: object) -> Iterator[list[dict[str, object]]]:
    """Every list of network interfaces in a template."""
    if isinstance(found, dict):
        if "NetworkInterfaces" in found:
            yield found["NetworkInterfaces"]
        for below in found.values():
            yield from interfaces(below)
    elif isinstance(found, list):
        for below in found:
            yield from interfaces(below)


def synthesised(real: Engine, account: Account, file: ClusterFile) -> list[dict[str, Any]]:
    """The template that ParallelCluster makes of a file, and its nested ones."""
    ec2 = account.client("ec2")
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    group = ec2.describe_security_groups()["SecurityGroups"][0]["GroupId"]
    where = {"LocationConstraint": "us-west-2"}
    account.client("s3").create_bucket(Bucket="the-bucket", CreateBucketConfiguration=where)
    config = config_of(file, Site(subnet, subnet, "the-bucket", (group,)))
    words = [str(real.folder / "bin/python"), "-c", SYNTHESIS, file.name]
    inherited = {**os.environ, "PATH": f"{real.folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": ""}
    done = subprocess.run(words, input=json.dumps(config), env=inherited, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    template, nested = json.loads(done.stdout.splitlines()[-1])
    return [template, *(one for one in nested if isinstance(one, dict) and "Resources" in one)]


def test_the_synthesised_template_has_the_efa_interfaces_of_trn1(real, account, moto, tmp_path):
    widest = max(interfaces(synthesised(real, account, loaded(tmp_path).file)), key=len)
    efa = [one for one in widest if str(one.get("InterfaceType", "")).startswith("efa")]
    assert len(efa) == 8
    assert {one["NetworkCardIndex"] for one in efa} == set(range(8))


@pytest.mark.parametrize("name", ["llama", "a-name-of-all-28-letters-abc"])
def test_the_policy_is_enough_for_all_that_parallelclusters_stack_is_made_of(
    real, account, moto, name, tmp_path
):
    """CloudFormation makes and deletes it in the name of whoever asks; so does the switch, at the end."""
    storage = "fsx={size_gb: 2400, type: PERSISTENT_2, throughput: 125, import_from: 's3://corpus/a'}"
    file = loaded(tmp_path, f"name={name}", storage).file
    scope = Scope(name, "us-west-2", ACCOUNT)
    templates = synthesised(real, account, file)
    assert len(templates) == 2
    stacks = (name, f"{name}-ComputeFleetQueuesNestedStack")
    tags = {"parallelcluster:cluster-name": name}
    asked = [one for pair in zip(templates, stacks, strict=True) for one in requests_of(*pair, tags)]
    assert len(asked) > 100
    assert refused(statements(scope), asked) == set()
    words = ("Delete", "Detach", "Remove")
    deletes = [one for one in asked if one.action.partition(":")[2].startswith(words)]
    assert refused(ending_statements(scope), deletes) == set()


def test_the_policy_is_enough_for_what_its_command_line_asks(real, account, moto, tmp_path):
    """Every call that the real one makes to look, and to begin to make a cluster."""
    file = loaded(tmp_path).file
    build = Build(account, real, file, tmp_path / "cluster.yaml", NOW, print, LEFT_OUT)
    path = tmp_path / "made.yaml"
    path.write_text(yaml.safe_dump(config_of(file, prepare(build))))
    build.clusters.create(file.name, path, LEFT_OUT, dry_run=True)
    try:
        build.clusters.create(file.name, path, LEFT_OUT)
        build.clusters.find(file.name)
    except ClusterError:
        pass  # moto cannot make its stack, but was asked to
    asked = [request_of(call, {}) for call in moto.requests() if call["action"] != "ec2:CreateKeyPair"]
    actions = {one.action for one in asked}
    assert {"cloudformation:CreateStack", "s3:PutObject", "ec2:DescribeInstanceTypes"} <= actions
    assert refused(statements(Scope("llama", "us-west-2", ACCOUNT)), asked) == set()


def killed_at(words: list[str], call: int) -> bool:
    """Run a command in a child that is killed with -9 at its so-manieth call; whether it came so far."""
    child = os.fork()
    if child == 0:
        left = iter(range(call))

        def count() -> None:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        BEFORE_CALL.append(count)
        os._exit(main(words))
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def ended_from_elsewhere(tmp_path: Path, monkeypatch) -> None:
    """A second `down`, by name alone, from a folder without a file."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert main(["cluster", "down", "llama", "--region", "us-west-2", "--yes"]) == 0
    assert scan(Account("us-west-2"), "llama") == []
    ec2 = Account("us-west-2").client("ec2")
    assert [vpc for vpc in ec2.describe_vpcs()["Vpcs"] if not vpc["IsDefault"]] == []


@pytest.mark.parametrize("call", [2, 4, 6, 8, 10, 12, 14, 16, 18, 19])
def test_up_that_was_killed_is_taken_down_from_elsewhere(engine, call, tmp_path, monkeypatch):
    """State lives in the account: nothing of the killed process is needed."""
    killed_at(["cluster", "up", str(write_cluster(tmp_path)), "--yes"], call)
    ended_from_elsewhere(tmp_path, monkeypatch)


@pytest.mark.parametrize("call", [2, 6, 10, 14, 18, 22, 26, 30, 34, 38])
def test_down_that_was_killed_is_gone_on_with_from_elsewhere(engine, call, tmp_path, monkeypatch):
    path = str(write_cluster(tmp_path))
    assert main(["cluster", "up", path, "--yes"]) == 0
    assert killed_at(["cluster", "down", path, "--yes"], call)
    ended_from_elsewhere(tmp_path, monkeypatch)


def test_up_that_was_killed_is_gone_on_with(engine, tmp_path):
    path = str(write_cluster(tmp_path))
    assert killed_at(["cluster", "up", path, "--yes"], 12)
    assert main(["cluster", "up", path, "--yes"]) == 0


def test_without_boto3_and_network_the_check_works(tmp_path, monkeypatch):
    """No address of AWS may be asked by a check: there is none to be had."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "cache"))
    assert main(["cluster", "check", str(write_cluster(tmp_path))]) == 0
