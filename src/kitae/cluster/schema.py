"""The cluster file: what is rented, for how long at most, and what is kept of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kitae.cluster.queue import Count, QueueConfig
from kitae.recipe.base import NonEmpty, Positive, Section

FORMAT = 1
"""Version of the cluster file's format that this kitae reads."""
TIME_SPAN = r"^\d{1,5} (minutes?|hours?|days?)$"
Span = Annotated[str, Field(pattern=TIME_SPAN)]
"""A length of time: `10 minutes`, `12 hours` or `2 days`."""
Address = Annotated[str, Field(pattern=r"^\d{1,3}(\.\d{1,3}){3}/\d{1,2}$")]
"""Addresses as CIDR writes them: `203.0.113.7/32`."""
GB = Annotated[int, Field(ge=40, le=16384)]


class ImageConfig(Section):
    """What the machines start from."""

    os: Literal["auto"] | NonEmpty = "auto"
    """Operating system; auto: ubuntu2204 for Trn1, else ubuntu2404."""
    ami: Annotated[str, Field(pattern=r"^ami-([0-9a-z]{8}|[0-9a-z]{17})$")] | None = None
    """An own image, `ami-` and 8 or 17 characters, made with ParallelCluster; null: its official one."""


class HeadConfig(Section):
    """The head node: always on, without an accelerator, in the public subnet."""

    instance: NonEmpty = "c5.4xlarge"
    """Its type."""
    disk_gb: GB = 200
    """Its root disk (gp3), GB; /home lies on it and is shared with all nodes."""
    ssh_key: NonEmpty | None = None
    """Name of a key pair of the region; null: no ssh, only AWS's session manager."""
    allow_ssh_from: list[Address] = Field(default=[])
    """Addresses that may reach port 22, such as `203.0.113.7/32`; none: nobody."""
    open_to_everybody: bool = False
    """true allows `0.0.0.0/0` in allow_ssh_from."""


class NetworkConfig(Section):
    """A network of its own, or given subnets."""

    cidr: Address = "10.60.0.0/16"
    """Addresses of the network that is made."""
    public_subnet: Annotated[str, Field(pattern=r"^subnet-[0-9a-f]{8,17}$")] | None = None
    """A subnet that exists, `subnet-...`, for the head node; null: a network is made."""
    private_subnet: Annotated[str, Field(pattern=r"^subnet-[0-9a-f]{8,17}$")] | None = None
    """A subnet that exists, `subnet-...`, for the nodes; it needs a way out, such as a NAT gateway."""
    security_groups: list[Annotated[str, Field(pattern=r"^sg-[0-9a-f]{8,17}$")]] = Field(default=[])
    """Security groups that exist, `sg-...`, for all nodes; none: ParallelCluster makes its own."""
    security_group_self_rule: bool = False
    """true says that each of security_groups allows all traffic from itself, in and out, which EFA needs."""


class FsxConfig(Section):
    """FSx for Lustre: fast storage that all nodes see. It bills until it is deleted."""

    size_gb: Positive
    """1200, 2400 or a multiple of 2400."""
    type: Literal["SCRATCH_2", "PERSISTENT_2"] = "SCRATCH_2"
    """SCRATCH_2: not replicated; PERSISTENT_2: replicated in its zone."""
    throughput: Literal[125, 250, 500, 1000] | None = None
    """Of PERSISTENT_2, MB/s for each TiB."""
    mount: Annotated[str, Field(pattern=r"^/[a-z0-9_/-]+$")] = "/fsx"
    """Folder on all nodes, such as `/fsx`."""
    at_down: Literal["delete", "keep"] = "delete"
    """What `kitae cluster down` does with it; keep: it goes on billing, which is said."""
    import_from: Annotated[str, Field(pattern=r"^s3://[a-z0-9.-]{3,63}(/.*)?$")] | None = None
    """S3 folder, `s3://...`, whose files appear in it."""
    export_to: Annotated[str, Field(pattern=r"^s3://[a-z0-9.-]{3,63}(/.*)?$")] | None = None
    """S3 folder, `s3://...` inside import_from's bucket, to which files can be released."""


class BootstrapConfig(Section):
    """What is installed on the nodes when they start, beside what kitae needs itself."""

    neuron: Literal["auto"] | NonEmpty = "auto"
    """Neuron SDK; auto: 2.28.1 for Trn1, the last that trains there, and the current one for Trn2."""
    python: NonEmpty | None = None
    """Packages for the environment on the shared disk, as pip takes them; null: kitae alone."""
    head: list[NonEmpty] = Field(default=[])
    """Scripts for the head node, `s3://...` or `https://...`, run after kitae's own."""
    nodes: list[NonEmpty] = Field(default=[])
    """Scripts for the nodes of queues, likewise."""
    read_buckets: list[Annotated[str, Field(pattern=r"^[a-z0-9.-]{3,63}$")]] = Field(default=[])
    """Buckets that all nodes may read, by name, without `s3://`."""


class SaveConfig(Section):
    """What `kitae cluster down` saves before it deletes anything."""

    from_folder: Annotated[str, Field(pattern=r"^/.+$")]
    """Absolute folder on the cluster, such as `/fsx/runs`."""
    to: Annotated[str, Field(pattern=r"^s3://[a-z0-9.-]{3,63}(/.*)?$")]
    """Where it goes, `s3://bucket/folder`: copied by the head node, new and changed files alone."""


class LimitsConfig(Section):
    """When it ends, whoever forgets it."""

    until: NonEmpty
    """The end: a time such as `2026-12-24T18:00Z`, or a length after `up` such as `12 hours`. AWS itself then
    deletes the cluster, also when this machine and the head node are gone."""
    max_cost_usd: Annotated[float, Field(gt=0)]
    """US dollars that all may cost until then, with every queue full; more is refused. Where that changes
    later, AWS ends the cluster when a full fleet would have used them up, if that is sooner."""
    idle_stop: Span | None = "10 minutes"
    """Nodes without a job are given back after this; null: when the fleet stops."""
    boot_failures: Positive = 5
    """So many boots that fail stop the fleet (always on) or close their queue (machines of jobs)."""
    capacity_wait: Span = "20 minutes"
    """So long machines may wait for others of their queue or job, on your money."""


class ClusterFile(Section):
    """A cluster: a head node, queues of machines, a network, storage, and its end."""

    kitae_cluster: Literal[1]
    """Version of the format."""
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*[a-z0-9]$")]
    """Name of the cluster and of its stacks: small letters, digits and dashes, a letter first."""
    region: NonEmpty
    """AWS region, such as us-west-2."""
    zone: NonEmpty
    """The one zone of all that is made: a name such as us-west-2d, which is each account's own, or an id such
    as usw2-az4."""
    image: ImageConfig = ImageConfig()
    """Operating system."""
    head: HeadConfig = HeadConfig()
    """The head node."""
    queues: Annotated[list[QueueConfig], Field(min_length=1)]
    """Queues of machines: Slurm's partitions."""
    scaling: Literal["all-or-nothing", "best-effort"] = "all-or-nothing"
    """all-or-nothing: where not all machines of a job come, none is kept; best-effort: those are that did."""
    network: NetworkConfig = NetworkConfig()
    """The network."""
    fsx: FsxConfig | None = None
    """FSx for Lustre; null: none, only the head node's disk is shared."""
    bootstrap: BootstrapConfig = BootstrapConfig()
    """What is installed."""
    save: list[SaveConfig] = Field(default=[])
    """What is saved before it is deleted."""
    limits: LimitsConfig
    """When it ends, and what it may cost."""
    tags: dict[str, str] = Field(default={})
    """Tags of all that is made, beside kitae's."""
    prices: dict[str, Annotated[float, Field(ge=0)]] = Field(default={})
    """US dollars where the catalogue has none or another: of an instance for an hour, or of nat, fsx-scratch,
    ebs-gp3."""

    @property
    def most(self) -> dict[str, Count]:
        """Machines at most, by type, over all queues."""
        found: dict[str, Count] = {}
        for queue in self.queues:
            found[queue.instance] = found.get(queue.instance, 0) + queue.max
        return found
