"""The ParallelCluster configuration that follows from a cluster file."""

from __future__ import annotations

import pytest
from cluster_case import loaded

from kitae.cluster.config import PLACEHOLDER, Site, config_of, resource_name
from kitae.cluster.pins import pins_of

SITE = Site("subnet-0a", "subnet-0b", "the-bucket", ("sg-0a",), ("sg-0b",), "bootstrap/abc")


def queue_of(config: dict) -> dict:
    return config["Scheduling"]["SlurmQueues"][0]


def test_a_fleet_with_efa_in_the_private_subnet(tmp_path):
    config = config_of(loaded(tmp_path).file, SITE)
    queue = queue_of(config)
    assert queue["Networking"] == {
        "SubnetIds": ["subnet-0b"],
        "SecurityGroups": ["sg-0a"],
        "PlacementGroup": {"Enabled": True},
    }
    assert queue["ComputeResources"] == [
        {
            "Name": "trn1-32xlarge",
            "InstanceType": "trn1.32xlarge",
            "MinCount": 0,
            "MaxCount": 4,
            "Efa": {"Enabled": True},
        }
    ]
    assert config["HeadNode"]["Networking"] == {"SubnetId": "subnet-0a", "SecurityGroups": ["sg-0a", "sg-0b"]}
    assert config["Scheduling"]["SlurmSettings"]["ScaledownIdletime"] == 10
    assert config["Image"] == {"Os": "ubuntu2204"}
    assert config["Monitoring"]["Logs"]["CloudWatch"]["DeletionPolicy"] == "Delete"


def test_everything_carries_the_tag_that_finds_it(tmp_path):
    config = config_of(loaded(tmp_path, "tags={team: research}").file, SITE)
    assert config["Tags"] == [
        {"Key": "team", "Value": "research"},
        {"Key": "kitae:cluster", "Value": "llama"},
    ]


def test_scripts_get_the_pinned_versions(tmp_path):
    config = config_of(
        loaded(tmp_path, "bootstrap={head: ['https://host/x.sh'], python: 'kitae[ja]'}").file, SITE
    )
    first, second = config["HeadNode"]["CustomActions"]["OnNodeConfigured"]["Sequence"]
    assert first["Script"] == "s3://the-bucket/bootstrap/abc/head.sh"
    guard, rest = first["Args"][:2], first["Args"][2:]
    assert guard == ["guard=s3://the-bucket/bootstrap/abc/guard.py", "watch=s3://the-bucket/guard"]
    assert rest[0] == "sdk=2.28.1"
    assert "apt=aws-neuronx-dkms=2.26.10.0*" in first["Args"]
    assert "pip=torch-neuronx==2.9.0.2.12.22436" in first["Args"]
    assert first["Args"][-1] == "pip=kitae[ja]"
    assert second == {"Script": "https://host/x.sh"}
    assert queue_of(config)["CustomActions"]["OnNodeConfigured"]["Sequence"][0]["Script"].endswith(
        "/compute.sh"
    )


def test_trn2_gets_the_current_sdk_on_its_image(tmp_path):
    config = config_of(loaded(tmp_path, "queues.0.instance=trn2.48xlarge").file, SITE)
    args = queue_of(config)["CustomActions"]["OnNodeConfigured"]["Sequence"][0]["Args"]
    assert config["Image"] == {"Os": "ubuntu2404"}
    assert args[0] == "sdk=2.33.0"
    assert "apt=aws-neuronx-runtime-lib=2.35.30.0*" in args


def test_machines_without_neuron_get_no_neuron(tmp_path):
    config = config_of(loaded(tmp_path, "queues.0.instance=p4d.24xlarge").file, SITE)
    assert queue_of(config)["CustomActions"]["OnNodeConfigured"]["Sequence"][0]["Args"] == []


@pytest.mark.parametrize(
    ("capacity", "kind", "target"),
    [
        ("{kind: spot}", "SPOT", None),
        ("{kind: reservation, id: cr-01234567}", "ONDEMAND", {"CapacityReservationId": "cr-01234567"}),
        (
            "{kind: capacity-block, id: cr-01234567, ends: 2026-12-24T11:30Z}",
            "CAPACITY_BLOCK",
            {"CapacityReservationId": "cr-01234567"},
        ),
    ],
)
def test_capacity(capacity, kind, target, tmp_path):
    queue = queue_of(config_of(loaded(tmp_path, f"queues.0.capacity={capacity}").file, SITE))
    assert queue["CapacityType"] == kind
    assert queue["ComputeResources"][0].get("CapacityReservationTarget") == target
    assert queue["Networking"]["PlacementGroup"]["Enabled"] is (kind != "CAPACITY_BLOCK")


def test_storage_with_s3_behind_it(tmp_path):
    links = "import_from: s3://corpus/in, export_to: s3://corpus/out"
    scratch = config_of(loaded(tmp_path, f"fsx={{size_gb: 2400, {links}, at_down: keep}}").file, SITE)
    [one] = scratch["SharedStorage"]
    assert one["FsxLustreSettings"] == {
        "StorageCapacity": 2400,
        "DeploymentType": "SCRATCH_2",
        "DeletionPolicy": "Retain",
        "ImportPath": "s3://corpus/in",
        "AutoImportPolicy": "NEW_CHANGED",
        "ExportPath": "s3://corpus/out",
    }
    persistent = f"fsx={{size_gb: 1200, type: PERSISTENT_2, throughput: 250, {links}}}"
    [one] = config_of(loaded(tmp_path, persistent).file, SITE)["SharedStorage"]
    assert one["FsxLustreSettings"]["PerUnitStorageThroughput"] == 250
    paths = [row["DataRepositoryPath"] for row in one["FsxLustreSettings"]["DataRepositoryAssociations"]]
    assert paths == ["s3://corpus/in", "s3://corpus/out"]


def test_only_the_head_node_writes_and_only_where_something_is_saved(tmp_path):
    changes = ("save=[{from_folder: /fsx/runs, to: 's3://results/x'}]", "bootstrap.read_buckets=[corpus]")
    config = config_of(loaded(tmp_path, *changes).file, SITE)
    assert config["HeadNode"]["Iam"]["S3Access"] == [
        {"BucketName": "corpus", "EnableWriteAccess": False},
        {"BucketName": "results", "EnableWriteAccess": True},
        {"BucketName": "the-bucket", "EnableWriteAccess": True},
    ]
    assert not any(one["EnableWriteAccess"] for one in queue_of(config)["Iam"]["S3Access"])


def test_without_a_key_the_session_manager_gets_in(tmp_path):
    config = config_of(loaded(tmp_path, "head={}").file, PLACEHOLDER)
    assert "Ssh" not in config["HeadNode"]
    assert "AdditionalIamPolicies" in config["HeadNode"]["Iam"]


GIVEN = "network={public_subnet: subnet-01234567, private_subnet: subnet-89abcdef}"


@pytest.mark.parametrize(
    ("head", "ssh"),
    [
        ("{}", {"AllowedIps": "127.0.0.1/32"}),
        ("{ssh_key: k}", {"KeyName": "k", "AllowedIps": "127.0.0.1/32"}),
        ("{ssh_key: k, allow_ssh_from: [203.0.113.7/32]}", {"KeyName": "k", "AllowedIps": "203.0.113.7/32"}),
    ],
)
def test_in_given_subnets_ssh_is_open_to_nobody_who_was_not_named(head, ssh, tmp_path):
    """ParallelCluster's own group lets everybody in where nothing is said."""
    file = loaded(tmp_path, GIVEN, f"head={head}").file
    config = config_of(file, Site("subnet-01234567", "subnet-89abcdef", "b"))
    assert config["HeadNode"]["Ssh"] == ssh


def test_no_address_of_everybody_is_in_any_configuration(tmp_path):
    for changes in ([], [GIVEN], ["head={}"], [GIVEN, "head={}"]):
        file = loaded(tmp_path, *changes).file
        site = SITE if not changes or changes == ["head={}"] else Site("subnet-0a", "subnet-0b", "b")
        assert "0.0.0.0/0" not in str(config_of(file, site))
    typed = "head={ssh_key: k, allow_ssh_from: [0.0.0.0/0], open_to_everybody: true}"
    assert "0.0.0.0/0" in str(config_of(loaded(tmp_path, GIVEN, typed).file, Site("a", "b", "c")))


def test_no_idle_stop_is_slurms_never(tmp_path):
    config = config_of(loaded(tmp_path, "limits.idle_stop=null").file, SITE)
    assert config["Scheduling"]["SlurmSettings"]["ScaledownIdletime"] == -1


def test_names_of_resources_are_allowed():
    assert resource_name("trn2u.48xlarge") == "trn2u-48xlarge"


def test_pins_of_the_last_release_that_trains_on_trn1():
    pins = pins_of("2.28.1")
    assert pins.system[0] == "aws-neuronx-dkms=2.26.10.0*"
    assert "neuronx-cc==2.23.6484.0" in pins.python
    assert pins.python[0] == "torch==2.9.*"
