"""The ParallelCluster configuration that follows from a cluster file.

Format: https://docs.aws.amazon.com/parallelcluster/latest/ug/cluster-configuration-file-v3.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from kitae.cluster.bootstrap_scripts import GUARD
from kitae.cluster.guard import FOLDER
from kitae.cluster.moments import seconds_of
from kitae.cluster.names import Names
from kitae.cluster.pins import pins_of
from kitae.cluster.queue import QueueConfig
from kitae.cluster.resolved import image_of, sdk_of, uses_efa, uses_placement_group
from kitae.cluster.schema import ClusterFile, FsxConfig

LOCAL_STORAGE = "/local_storage"
"""Where a node's own disks are."""
_LOG_DAYS = 14
_NOBODY = "127.0.0.1/32"
"""Whence nobody can come. ParallelCluster's own group is open to everybody where nothing is said."""
_CAPACITY = {
    "on-demand": "ONDEMAND",
    "spot": "SPOT",
    "reservation": "ONDEMAND",
    "capacity-block": "CAPACITY_BLOCK",
}
_SESSION_MANAGER = "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"


@dataclass(frozen=True)
class Site:
    """What the configuration names that exists in the account."""

    public_subnet: str
    private_subnet: str
    bucket: str
    """Of scripts and templates."""
    groups: tuple[str, ...] = ()
    """Security groups of all nodes."""
    ssh_groups: tuple[str, ...] = ()
    """Security groups that let ssh in to the head node."""
    scripts: str = "bootstrap/unpublished"
    """Folder of kitae's scripts in the bucket."""
    wheel: str = ""
    """Address of kitae itself, `s3://...`."""


PLACEHOLDER = Site(
    public_subnet="subnet-00000000000000001",
    private_subnet="subnet-00000000000000002",
    bucket="kitae-not-made-yet",
    groups=("sg-00000000000000001",),
    ssh_groups=("sg-00000000000000002",),
)
"""What a configuration names before anything exists."""


def config_of(file: ClusterFile, site: Site) -> dict[str, Any]:
    """The configuration, as `pcluster create-cluster` reads it."""
    tags = Names(file.name).tags(file.tags)
    return {
        "Region": file.region,
        "CustomS3Bucket": site.bucket,
        "Image": _image(file),
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
        "Imds": {"ImdsSupport": "v2.0"},
        "HeadNode": _head(file, site),
        "Scheduling": {
            "Scheduler": "slurm",
            "ScalingStrategy": file.scaling,
            "SlurmSettings": {"ScaledownIdletime": _idle_minutes(file), "QueueUpdateStrategy": "DRAIN"},
            "SlurmQueues": [_queue(file, queue, site) for queue in file.queues],
        },
        **({} if file.fsx is None else {"SharedStorage": [_fsx(file.fsx)]}),
        "Monitoring": {
            "Logs": {"CloudWatch": {"RetentionInDays": _LOG_DAYS, "DeletionPolicy": "Delete"}},
            "Dashboards": {"CloudWatch": {"Enabled": False}},
        },
    }


def resource_name(instance: str) -> str:
    """Name of the compute resource of a type: `trn1-32xlarge`."""
    return re.sub(r"[^a-z0-9]", "-", instance)[:25]


def _image(file: ClusterFile) -> dict[str, Any]:
    own = {} if file.image.ami is None else {"CustomAmi": file.image.ami}
    return {"Os": image_of(file), **own}


def _idle_minutes(file: ClusterFile) -> int:
    # -1 is Slurm's "never".
    stop = file.limits.idle_stop
    return -1 if stop is None else max(1, seconds_of(stop) // 60)


def _head(file: ClusterFile, site: Site) -> dict[str, Any]:
    head = file.head
    groups = [*site.groups, *site.ssh_groups]
    # The key also works with given groups, whose rules say who may come.
    ssh: dict[str, Any] = {} if head.ssh_key is None else {"KeyName": head.ssh_key}
    if not groups:
        ssh["AllowedIps"] = (head.allow_ssh_from or [_NOBODY])[0]
    return {
        "InstanceType": head.instance,
        "Networking": {
            "SubnetId": site.public_subnet,
            **({"SecurityGroups": groups} if groups else {}),
        },
        **({"Ssh": ssh} if ssh else {}),
        "LocalStorage": {"RootVolume": _disk(head.disk_gb)},
        "CustomActions": _actions(file, site, "head", _sdks(file)),
        "Iam": _iam(file, site, write=True),
        "Imds": {"Secured": True},
    }


def _queue(file: ClusterFile, queue: QueueConfig, site: Site) -> dict[str, Any]:
    sdk = sdk_of(file, queue)
    return {
        "Name": queue.name,
        "CapacityType": _CAPACITY[queue.capacity.kind],
        "ComputeResources": [_resource(queue)],
        "Networking": {
            "SubnetIds": [site.private_subnet],
            **({"SecurityGroups": list(site.groups)} if site.groups else {}),
            "PlacementGroup": {"Enabled": uses_placement_group(queue)},
        },
        "ComputeSettings": {
            "LocalStorage": {
                "RootVolume": _disk(queue.disk_gb),
                "EphemeralVolume": {"MountDir": LOCAL_STORAGE},
            }
        },
        "CustomActions": _actions(file, site, "compute", [] if sdk is None else [sdk]),
        "Iam": _iam(file, site, write=False),
    }


def _resource(queue: QueueConfig) -> dict[str, Any]:
    reserved = {} if queue.capacity.id is None else {"CapacityReservationId": queue.capacity.id}
    return {
        "Name": resource_name(queue.instance),
        "InstanceType": queue.instance,
        "MinCount": queue.min,
        "MaxCount": queue.max,
        "Efa": {"Enabled": uses_efa(queue)},
        **({"CapacityReservationTarget": reserved} if reserved else {}),
    }


def _disk(size_gb: int) -> dict[str, Any]:
    return {"Size": size_gb, "VolumeType": "gp3", "Encrypted": True}


def _actions(file: ClusterFile, site: Site, node: str, sdks: list[str]) -> dict[str, Any]:
    """The script of kitae with the versions to install, then the file's own."""
    head = node == "head"
    extra = [f"pip={file.bootstrap.python}"] if file.bootstrap.python is not None and head else []
    words = [word for sdk in sdks for word in (f"sdk={sdk}", *_pins(sdk), *extra)] or extra
    folder = f"s3://{site.bucket}/{site.scripts}"
    wheel = [f"wheel={site.wheel}"] if site.wheel and head else []
    guard = [f"guard={folder}/{GUARD}", f"watch=s3://{site.bucket}/{FOLDER}"] if head else []
    own = {"Script": f"{folder}/{node}.sh", "Args": [*guard, *wheel, *words]}
    others = file.bootstrap.head if node == "head" else file.bootstrap.nodes
    return {"OnNodeConfigured": {"Sequence": [own, *({"Script": script} for script in others)]}}


def _pins(sdk: str) -> list[str]:
    pins = pins_of(sdk)
    return [*(f"apt={one}" for one in pins.system), *(f"pip={one}" for one in pins.python)]


def _sdks(file: ClusterFile) -> list[str]:
    found = (sdk_of(file, queue) for queue in file.queues)
    return list(dict.fromkeys(sdk for sdk in found if sdk is not None))


def _iam(file: ClusterFile, site: Site, *, write: bool) -> dict[str, Any]:
    buckets = dict.fromkeys((*file.bootstrap.read_buckets, *_script_buckets(file)), False)
    buckets |= {save.to.removeprefix("s3://").partition("/")[0]: True for save in file.save}
    buckets[site.bucket] = write
    access = [
        {"BucketName": name, "EnableWriteAccess": may and write} for name, may in sorted(buckets.items())
    ]
    managed = file.head.ssh_key is None or bool(file.save)
    policies = {"AdditionalIamPolicies": [{"Policy": _SESSION_MANAGER}]} if managed else {}
    return {"S3Access": access, **policies}


def _script_buckets(file: ClusterFile) -> list[str]:
    scripts = (*file.bootstrap.head, *file.bootstrap.nodes)
    return [one.removeprefix("s3://").partition("/")[0] for one in scripts if _in_s3(one)]


def _in_s3(url: str) -> bool:
    return url.startswith("s3://")


def _fsx(fsx: FsxConfig) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "StorageCapacity": fsx.size_gb,
        "DeploymentType": fsx.type,
        "DeletionPolicy": "Delete" if fsx.at_down == "delete" else "Retain",
    }
    if fsx.throughput is not None:
        settings["PerUnitStorageThroughput"] = fsx.throughput
    settings |= _linked(fsx) if fsx.type == "SCRATCH_2" else _associated(fsx)
    return {"Name": "fsx", "StorageType": "FsxLustre", "MountDir": fsx.mount, "FsxLustreSettings": settings}


def _linked(fsx: FsxConfig) -> dict[str, Any]:
    """S3 behind a scratch file system."""
    if fsx.import_from is None:
        return {}
    export = {} if fsx.export_to is None else {"ExportPath": fsx.export_to}
    return {"ImportPath": fsx.import_from, "AutoImportPolicy": "NEW_CHANGED", **export}


def _associated(fsx: FsxConfig) -> dict[str, Any]:
    """S3 behind a persistent one."""
    found = []
    if fsx.import_from is not None:
        found.append(("import", "/", fsx.import_from, {"AutoImportPolicy": ["NEW", "CHANGED"]}))
    if fsx.export_to is not None and fsx.export_to != fsx.import_from:
        found.append(("export", "/export", fsx.export_to, {"AutoExportPolicy": ["NEW", "CHANGED"]}))
    rows = [
        {"Name": name, "FileSystemPath": there, "DataRepositoryPath": url, **policy}
        for name, there, url, policy in found
    ]
    return {"DataRepositoryAssociations": rows} if rows else {}
