"""What a cluster file leaves to kitae: what `auto` is, and what follows from the machines' types."""

from __future__ import annotations

from kitae.catalog.aws import is_type
from kitae.catalog.instances import Instance, instances
from kitae.cluster.queue import QueueConfig
from kitae.cluster.schema import ClusterFile

SDK_OF_CHIP = {"trainium1": "2.28.1", "trainium2": "2.33.0", "trainium3": "2.33.0"}
"""Neuron SDK by chip: the last good one for training on Trn1, else the current one."""
_IMAGE_OF_CHIP = {"trainium1": "ubuntu2204"}
_IMAGE = "ubuntu2404"


def machine_of(queue: QueueConfig) -> Instance | None:
    """The queue's machine in the catalogue; None where it is not there, or is nothing that EC2 starts."""
    found = instances().get(queue.instance)
    return found if found is not None and is_type(found.name) else None


def uses_efa(queue: QueueConfig) -> bool:
    """Whether the queue's machines get EFA."""
    if queue.efa != "auto":
        return queue.efa
    machine = machine_of(queue)
    return machine is not None and machine.efa and queue.max > 1


def uses_placement_group(queue: QueueConfig) -> bool:
    """Whether the queue's machines are put close to each other; a capacity block's are already."""
    if queue.placement_group != "auto":
        return queue.placement_group
    return uses_efa(queue) and queue.capacity.kind != "capacity-block"


def chips_of(file: ClusterFile) -> set[str]:
    """Names of the chips of all queues."""
    machines = (machine_of(queue) for queue in file.queues)
    return {one.chip.name for one in machines if one is not None and one.chip is not None}


def image_of(file: ClusterFile) -> str:
    """The operating system of all nodes."""
    if file.image.os != "auto":
        return file.image.os
    return next((_IMAGE_OF_CHIP[chip] for chip in sorted(chips_of(file)) if chip in _IMAGE_OF_CHIP), _IMAGE)


def sdk_of(file: ClusterFile, queue: QueueConfig) -> str | None:
    """The Neuron SDK of a queue's machines; None for machines without Neuron."""
    machine = machine_of(queue)
    if machine is None or machine.chip is None or machine.chip.name not in SDK_OF_CHIP:
        return None
    return SDK_OF_CHIP[machine.chip.name] if file.bootstrap.neuron == "auto" else file.bootstrap.neuron


def makes_network(file: ClusterFile) -> bool:
    """Whether a network is made, or given subnets are used."""
    return file.network.public_subnet is None and file.network.private_subnet is None
