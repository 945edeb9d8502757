# ruff: noqa: E501 - lines as they were written
"""Row 41: lines that AWS and nodes really write, told in plain words with the way out."""

from __future__ import annotations

import pytest
from clustermgtd_logs import capacity_refusal

from kitae.cluster.troubles import TROUBLES, plain_words, words_for

# Lines as they stand in public reports and in AWS's manuals, and words that must be told of each.
RECORDED = {
    "no capacity in the zone": (
        "Resource handler returned message: 'We currently do not have sufficient trn1.32xlarge capacity in the "
        "Availability Zone you requested (us-west-2d). Our system will be working on provisioning additional "
        "capacity.' (Service: Ec2, Status Code: 500)",
        "AWS has not enough trn1.32xlarge free in us-west-2d now; take another zone, a reservation",
    ),
    "no capacity, by the resume log": (
        capacity_refusal("train", 4),
        "not enough trn1.32xlarge free in us-west-2d",
    ),
    "no capacity, without a zone": (
        "An error occurred (InsufficientInstanceCapacity) when calling the RunInstances operation: none",
        "take another zone, a reservation or a capacity block",
    ),
    "no spot": (
        "An error occurred (InsufficientInstanceCapacity) when calling the RunInstances operation (reached max "
        "retries: 1): There is no Spot capacity available that matches your request.",
        "no spot machine to be had now; wait, or take capacity {kind: on-demand}",
    ),
    "quota": (
        "You have requested more vCPU capacity than your current vCPU limit of 0 allows for the instance bucket "
        "that the specified instance type belongs to. (Service: AmazonEC2; Error Code: VcpuLimitExceeded)",
        "kitae cluster quota says by how much, --request asks for it",
    ),
    "type not in zone": (
        "Your requested instance type (trn1.32xlarge) is not supported in your requested Availability Zone "
        "(us-west-2a). Please retry your request by not specifying an Availability Zone",
        "the zone has no trn1.32xlarge; kitae cluster quota names the zones that have",
    ),
    "addresses": (
        "The maximum number of addresses has been reached. (Service: AmazonEC2; Error Code: AddressLimitExceeded)",
        "quota of public addresses is used up",
    ),
    "networks": (
        "The maximum number of VPCs has been reached. (Service: AmazonEC2; Error Code: VpcLimitExceeded)",
        "quota of networks is used up",
    ),
    "subnet full": (
        "An error occurred (InsufficientFreeAddressesInSubnet) when calling the RunInstances operation: There are "
        "not enough free addresses in subnet 'subnet-0123' to satisfy the requested number of instances.",
        "take a larger network.cidr",
    ),
    "key pair": (
        "The key pair 'my-key' does not exist (InvalidKeyPair.NotFound)",
        "key pair of head.ssh_key",
    ),
    "no role for spot": (
        "An error occurred (AuthFailure.ServiceLinkedRoleCreationNotPermitted) when calling the RunInstances "
        "operation: The provided credentials do not have permission to create the service-linked role for EC2 "
        "Spot Instances.",
        "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
    ),
    "not allowed": (
        "User: arn:aws:iam::123456789012:user/me is not authorized to perform: iam:CreateRole on resource: x",
        "iam:CreateRole is not allowed; kitae cluster policy prints what is needed",
    ),
    "image of another release": (
        "WaitCondition received failed message: 'This AMI was created with aws-parallelcluster-cookbook-3.3.0, but "
        "is trying to be used with aws-parallelcluster-cookbook-3.4.0b1.'",
        "image.ami was made with ParallelCluster 3.3.0, another than kitae's",
    ),
    "image of somebody": (
        "This AMI was not baked by ParallelCluster. Please use pcluster build-image command",
        "image.ami is no image of ParallelCluster",
    ),
    "script not there": (
        "Failed to download OnNodeConfigured script 1 s3://scripts/b.sh using aws s3, return code: 1.",
        "a bootstrap script cannot be fetched; look at its address",
    ),
    "script that fails": (
        "Failed to execute OnNodeConfigured script 1 s3://b/head.sh, return code: 100.",
        "a bootstrap script failed",
    ),
    "own script that fails": (
        "kitae: FAILED in line 77: apt-get -qq install -y (all of it is in /var/log/kitae-bootstrap.log)",
        "kitae's bootstrap failed at `apt-get -qq install -y`",
    ),
    "package not there": (
        "E: Version '2.26.10.0*' for 'aws-neuronx-dkms' was not found",
        "look at image.os and bootstrap.neuron",
    ),
    "driver": (
        "Error! Bad return status for module build on kernel: 6.8.0-1030-aws (x86_64)",
        "does not build for the kernel of this image",
    ),
    "disk": ("OSError: [Errno 28] No space left on device: '/home/kitae'", "a larger disk_gb"),
    "FSx": ("Failed to mount FSX. Please check /var/log/chef-client.log", "ports 988 and 1018 to 1023"),
    "time out": (
        "WaitCondition timed out. Received 0 conditions when expecting 1",
        "the head node did not report in time: its subnet has no way out",
    ),
    "machines that never boot": (
        "Cluster has been set to PROTECTED mode due to failures detected in static node provisioning.",
        "machines that are always on failed to boot again and again",
    ),
    "name taken": (
        "parallelcluster-slurm-llama already exists in stack arn:aws:cloudformation:us-west-2:1:stack/llama/x",
        "parallelcluster-slurm-llama of an earlier cluster is in the way; kitae cluster leftovers finds it",
    ),
    "no way out": (
        'Could not connect to the endpoint URL: "https://s3.us-west-2.amazonaws.com/b"',
        "its subnet needs a way out",
    ),
    "throttled": ("Rate exceeded (Service: Fsx, Status Code: 400)", "wait some minutes"),
    "ends by itself": (
        "Node bootstrap error: Node gpu-st-ml-1(10.0.10.222) is currently in replacement and no backing instance",
        "machines start and end again before they join",
    ),
    "joins too late": (
        "Node bootstrap error: Resume timeout expires for node q-dy-t-1(ip-1)",
        "do not join in time",
    ),
    "reservation": (
        "An error occurred (ReservationCapacityExceeded) when calling the RunInstances operation: x",
        "the reservation or capacity block is used up",
    ),
    "FSx quota": ("ServiceLimitExceeded: storage capacity limit of 1200 GiB", "quota of FSx storage"),
    "subnet": ("The subnet ID 'subnet-0a' does not exist (InvalidSubnetID.NotFound)", "look at network"),
    "volume": ("Failed to mount EBS volume. Please check", "cannot mount its EBS volume"),
    "something not allowed": ("fatal: AccessDenied", "kitae cluster policy prints what is needed"),
}


@pytest.mark.parametrize("what", RECORDED)
def test_a_recorded_failure_is_told_in_plain_words(what):
    line, words = RECORDED[what]
    said = words_for(line)
    assert said is not None
    assert words in said


def test_every_known_trouble_is_recorded():
    lines = [line for line, _ in RECORDED.values()]
    first = {next((one for one in TROUBLES if one.pattern.search(line)), None) for line in lines}
    assert [one.pattern.pattern for one in TROUBLES if one not in first] == []


def test_the_first_line_that_is_known_counts():
    lines = ["all is well", "No space left on device", "Rate exceeded"]
    assert plain_words(lines) == "a disk is full; give the node a larger disk_gb"
    assert plain_words(["all is well", ""]) is None
