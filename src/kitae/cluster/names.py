"""Names and tags of all that is made for a cluster: any machine with the account finds them again."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_NAME = 28
"""Letters of a cluster's name: `kitae-<name>-<account>-<region>` names a bucket, of at most 63."""
CLUSTER_TAG = "kitae:cluster"
ENGINE_TAG = "parallelcluster:cluster-name"
"""What ParallelCluster tags all that it makes with."""


@dataclass(frozen=True)
class Names:
    """What is called how."""

    cluster: str

    @property
    def switch_stack(self) -> str:
        """The stack with the dead man's switch."""
        return f"kitae-{self.cluster}-switch"

    @property
    def network_stack(self) -> str:
        """The stack with the network."""
        return f"kitae-{self.cluster}-network"

    @property
    def cluster_stack(self) -> str:
        """ParallelCluster names its stack as the cluster."""
        return self.cluster

    def bucket(self, account: str, region: str) -> str:
        """The bucket of scripts and of ParallelCluster's templates."""
        return f"kitae-{self.cluster}-{account}-{region}"

    def tags(self, own: dict[str, str]) -> dict[str, str]:
        """Tags of everything."""
        return {**own, CLUSTER_TAG: self.cluster}
