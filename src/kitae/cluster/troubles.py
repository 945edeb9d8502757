"""What goes wrong in a cluster, in plain words: known lines of events and logs, and the way out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Trouble:
    """A known one. Groups of the pattern fill the words."""

    pattern: re.Pattern[str]
    words: str

    def said(self, line: str) -> str | None:
        """The words, where the line tells of it."""
        found = self.pattern.search(line)
        return None if found is None else self.words.format(**found.groupdict(default="the type"))


def _known(pattern: str, words: str) -> Trouble:
    return Trouble(re.compile(pattern, re.IGNORECASE), words)


_TYPE = r"(?P<type>[a-z][a-z0-9-]*\.[a-z0-9]+)"
TROUBLES: tuple[Trouble, ...] = (
    _known(
        r"no Spot capacity|MaxSpotInstanceCountExceeded|SpotMaxPriceTooLow",
        "there is no spot machine to be had now; wait, or take capacity {{kind: on-demand}}",
    ),
    _known(
        rf"(?:not have sufficient|insufficient) {_TYPE} capacity.*?\((?P<zone>[a-z0-9-]+)\)",
        "AWS has not enough {type} free in {zone} now; take another zone, a reservation or a capacity block, "
        "or try again later",
    ),
    _known(
        r"ReservationCapacityExceeded|InvalidCapacityReservation|CapacityReservation\S* .*(?:found|expired)",
        "the reservation or capacity block is used up, over, or not of this zone and type; look at its id",
    ),
    _known(
        r"InsufficientInstanceCapacity|InsufficientHostCapacity|InsufficientReservedInstanceCapacity",
        "AWS has not enough of these machines free in the zone now; take another zone, a reservation or a "
        "capacity block, or try again later",
    ),
    _known(
        r"VcpuLimitExceeded|vCPU limit of (?P<type>\d+)|InstanceLimitExceeded",
        "the account's quota of vCPU is too small; kitae cluster quota says by how much, --request asks "
        "for it",
    ),
    _known(
        rf"requested instance type \({_TYPE}\) is not supported in your requested Availability Zone",
        "the zone has no {type}; kitae cluster quota names the zones that have",
    ),
    _known(
        r"AddressLimitExceeded|maximum number of addresses has been reached",
        "the account's quota of public addresses is used up; give some back, or ask AWS for more "
        "(L-0263D0A3)",
    ),
    _known(
        r"VpcLimitExceeded|maximum number of VPCs has been reached",
        "the account's quota of networks is used up; delete one, ask AWS for more (L-F678F1CE), or give "
        "subnets that exist",
    ),
    _known(
        r"InsufficientFreeAddressesInSubnet|insufficient free addresses",
        "the subnet has not enough free addresses; take a larger network.cidr, or other subnets",
    ),
    _known(
        r"InvalidSubnetID\.NotFound|subnet ID '?(?P<type>subnet-\w+)'? does not exist",
        "a subnet that the file names is not there in this region; look at network",
    ),
    _known(
        r"InvalidKeyPair\.NotFound|key pair '(?P<type>[^']+)' does not exist",
        "the key pair of head.ssh_key is not there in this region; make it, or name another",
    ),
    _known(
        r"ServiceLinkedRoleCreationNotPermitted|permission to create the service-linked role",
        "the account has no role for spot machines yet; "
        "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
    ),
    _known(
        r"(?:not authorized to perform:?|UnauthorizedOperation\S*:?) *(?P<type>[a-z0-9-]+:\w+)",
        "{type} is not allowed; kitae cluster policy prints what is needed",
    ),
    _known(
        r"UnauthorizedOperation|AccessDenied|Access Denied",
        "something is not allowed; kitae cluster policy prints what is needed",
    ),
    _known(
        r"created with (?:aws-parallelcluster-cookbook-)?(?P<type>[\d.]+\w*), but",
        "image.ami was made with ParallelCluster {type}, another than kitae's; make it anew, or take it out",
    ),
    _known(
        r"not baked by ParallelCluster",
        "image.ami is no image of ParallelCluster; make one with pcluster build-image, or take it out",
    ),
    _known(
        r"Version '(?P<type>[^']+)' for '[^']+' was not found|Unable to locate package (?P<package>\S+)",
        "a package of the Neuron SDK is not in its repository for this system; look at image.os and "
        "bootstrap.neuron",
    ),
    _known(
        r"Bad return status for module build|dkms.*(?:failed|error)",
        "the Neuron driver does not build for the kernel of this image; take ParallelCluster's official one",
    ),
    _known(
        r"No space left on device",
        "a disk is full; give the node a larger disk_gb",
    ),
    _known(
        r"Failed to (?:download|fetch) On\w+ script|fatal error: An error occurred \((?:403|404)\)",
        "a bootstrap script cannot be fetched; look at its address in bootstrap, and at "
        "bootstrap.read_buckets",
    ),
    _known(
        r"kitae: FAILED in line \d+: (?P<type>.+?) \(",
        "kitae's bootstrap failed at `{type}`; the lines before it in /var/log/kitae-bootstrap.log say why",
    ),
    _known(
        r"Failed to (?:execute|run) On\w+ script",
        "a bootstrap script failed; /var/log/kitae-bootstrap.log and cloud-init-output of the node say where",
    ),
    _known(
        r"Failed to mount FSX|mount\.lustre",
        "FSx cannot be mounted; the nodes' security groups must let each other in (ports 988 and 1018 to "
        "1023)",
    ),
    _known(
        r"Failed to mount (?P<type>EBS volume|EFS|RAID array)",
        "the head node cannot mount its {type}; repeat it, and look at chef-client of the head node",
    ),
    _known(
        r"PROTECTED mode due to failures|in protected mode due to failures",
        "machines that are always on failed to boot again and again; a node's kitae-bootstrap.log says why",
    ),
    _known(
        r"(?P<type>[\w/.:-]+) already exists",
        "{type} of an earlier cluster is in the way; kitae cluster leftovers finds it, or take another name",
    ),
    _known(
        r"Could not connect to the endpoint URL|Connect timeout on endpoint|Temporary failure in name res",
        "a node cannot reach AWS; its subnet needs a way out: a NAT gateway, or a public address",
    ),
    _known(
        r"ServiceLimitExceeded|storage capacity limit",
        "the account's quota of FSx storage is too small; ask AWS for more, or take a smaller fsx.size_gb",
    ),
    _known(
        r"Rate exceeded|RequestLimitExceeded|Throttling",
        "AWS answers no more so many questions of this account; wait some minutes, and repeat it",
    ),
    _known(
        r"(?:Resume|Replacement) timeout expires",
        "machines start, but do not join in time; a node's kitae-bootstrap.log and cloud-init-output say why",
    ),
    _known(
        r"(?:no|without valid) backing instance",
        "machines start and end again before they join; a node's kitae-bootstrap.log and cloud-init-output "
        "say why",
    ),
    _known(
        r"WaitCondition timed out|Failed to receive \d+ resource signal|Received 0 conditions",
        "the head node did not report in time: its subnet has no way out, its bootstrap hangs, or machines "
        "that are always on did not come",
    ),
)
"""More telling ones first."""


def plain_words(lines: Iterable[str]) -> str | None:
    """The first known trouble of the lines, in plain words with the way out; None where none is known."""
    return next((said for line in lines if (said := words_for(line)) is not None), None)


def words_for(line: str) -> str | None:
    """What one line tells of."""
    return next((said for one in TROUBLES if (said := one.said(line)) is not None), None)
