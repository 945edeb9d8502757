"""Rules of types, queues, capacity and images."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from kitae.catalog.aws import fleet_types, is_type, parallelcluster_images, vcpu_quota
from kitae.catalog.instances import instances
from kitae.cluster.findings import Case, Said
from kitae.cluster.moments import end_of, moment, shown
from kitae.cluster.pins import KNOWN, LAST_OF_TRN1, NATIVE
from kitae.cluster.queue import QueueConfig
from kitae.cluster.resolved import image_of, machine_of, sdk_of, uses_efa
from kitae.recipe.yaml_positions import KeyPath
from kitae.suggest import did_you_mean

_QUEUE_NAME = 25
_BOOTSTRAPPED = ("ubuntu2204", "ubuntu2404")
"""Images that kitae's bootstrap scripts install on."""


def queue_names(case: Case) -> Iterator[Said]:
    """Each queue has a name of its own, no longer than ParallelCluster allows."""
    counts = Counter(queue.name for queue in case.file.queues)
    for index, queue in enumerate(case.file.queues):
        where = ("queues", index, "name")
        if counts[queue.name] > 1:
            yield Said(
                where, f"{counts[queue.name]} queues are called {queue.name!r}; give each its own name"
            )
        if len(queue.name) > _QUEUE_NAME:
            yield Said(where, f"{queue.name!r} has {len(queue.name)} letters; {_QUEUE_NAME} are allowed")


def instance_type(case: Case) -> Iterator[Said]:
    """Types exist, can be started one by one, and queues have an accelerator."""
    known = [one.name for one in fleet_types()]
    for index, queue in enumerate(case.file.queues):
        where, name = ("queues", index, "instance"), queue.instance
        found = instances().get(name)
        if found is None:
            dotless = "; a type has a dot" if "." not in name else ""
            yield Said(where, f"no type is called {name!r}{dotless}{did_you_mean(name, known)}".rstrip("."))
        elif not is_type(name):
            yield Said(
                where,
                f"{name} is a group of machines, which EC2 starts only as one; write a type such "
                "as trn2.48xlarge",
            )
        elif found.chip is None:
            yield Said(where, f"{name} has no accelerator; write one of {', '.join(known)}")
    head = case.file.head.instance
    if head not in instances() and not re.fullmatch(r"[a-z0-9-]+\.[a-z0-9]+", head):
        yield Said(("head", "instance"), f"{head!r} is no type; write one such as c5.4xlarge")


def head_instance(case: Case) -> Iterator[Said]:
    """A head node trains nothing."""
    found = instances().get(case.file.head.instance)
    if found is not None and found.chip is not None:
        yield Said(
            ("head", "instance"),
            f"{found.name} has accelerators, which would never be used and always "
            "be paid for; write one without, such as c5.4xlarge",
        )


def efa_type(case: Case) -> Iterator[Said]:
    """EFA only where the type has it."""
    for index, queue in enumerate(case.file.queues):
        machine = machine_of(queue)
        if queue.efa is True and machine is not None and not machine.efa:
            yield Said(
                ("queues", index, "efa"), f"{machine.name} has no EFA; write efa: false, or another type"
            )


def small_multi_node(case: Case) -> Iterator[Said]:
    """Machines without EFA never train together."""
    for index, queue in enumerate(case.file.queues):
        machine = machine_of(queue)
        if machine is not None and machine.chip is not None and not machine.efa and queue.max > 1:
            yield Said(
                ("queues", index, "max"),
                f"{queue.max} x {machine.name}: a training over several of them "
                "hangs, for they have no EFA; write max: 1 (several queues are several machines), or a "
                "type with EFA",
            )


def efa_off(case: Case) -> Iterator[Said]:
    """Several machines with EFA use it."""
    for index, queue in enumerate(case.file.queues):
        machine = machine_of(queue)
        if queue.efa is False and machine is not None and machine.efa and queue.max > 1:
            yield Said(
                ("queues", index, "efa"),
                f"collectives between {queue.max} x {machine.name} time out "
                "without EFA; take the line out, or write max: 1",
            )


def placement(case: Case) -> Iterator[Said]:
    """Placement groups where they can be and help."""
    for index, queue in enumerate(case.file.queues):
        where = ("queues", index, "placement_group")
        if queue.placement_group is True and queue.capacity.kind == "capacity-block":
            yield Said(
                where,
                "machines of a capacity block are placed already, and cannot be put in a group; "
                "take the line out",
            )
        if queue.placement_group is False and uses_efa(queue) and queue.capacity.kind == "on-demand":
            yield Said(
                where, "machines far from each other are slower together; take the line out", "warning"
            )


def capacity_id(case: Case) -> Iterator[Said]:
    """A reservation has an id, and nothing else has."""
    for index, queue in enumerate(case.file.queues):
        where, capacity = ("queues", index, "capacity"), queue.capacity
        reserved = capacity.kind in ("reservation", "capacity-block")
        if reserved and capacity.id is None:
            yield Said((*where, "kind"), f"{capacity.kind} needs its id; add id: cr-...")
        if not reserved and capacity.id is not None:
            yield Said(
                (*where, "id"),
                f"it has no effect with kind: {capacity.kind}; write kind: reservation "
                "or capacity-block, or take it out",
            )
        if capacity.kind != "capacity-block" and capacity.ends is not None:
            yield Said((*where, "ends"), "only a capacity block ends; take it out")


def capacity_block_size(case: Case) -> Iterator[Said]:
    """A capacity block's machines are all there all the time."""
    for index, queue in enumerate(case.file.queues):
        if queue.capacity.kind == "capacity-block" and queue.min != queue.max:
            yield Said(
                ("queues", index, "min"),
                f"machines of a capacity block are always on: write min: {queue.max}, as max",
            )


def capacity_block_end(case: Case) -> Iterator[Said]:
    """The cluster ends before its capacity block does."""
    for index, queue in enumerate(case.file.queues):
        if queue.capacity.kind != "capacity-block":
            continue
        where, ends = ("queues", index, "capacity", "ends"), queue.capacity.ends
        if ends is None:
            yield Said(where[:-1], "a capacity block has an end; add ends: 2026-12-24T11:30Z")
            continue
        try:
            end = moment(ends)
        except ValueError:
            yield Said(where, f"{ends!r} is no time; write it as 2026-12-24T11:30Z")
            continue
        yield from _after_block(case, queue, end, where)


def _after_block(case: Case, queue: QueueConfig, end: datetime, where: KeyPath) -> Iterator[Said]:
    if end <= case.now:
        yield Said(where, f"the block of queue {queue.name} has ended ({shown(end)}); name another")
        return
    try:
        until = end_of(case.file.limits.until, case.now)
    except ValueError:
        return  # another rule's
    if until > end:
        yield Said(
            ("limits", "until"),
            f"the cluster would outlive the capacity block of queue {queue.name}, "
            f"which ends {shown(end)}; write an earlier end",
        )


def scaling(case: Case) -> Iterator[Said]:
    """Where machines train together, some of them are of no use."""
    several = any(queue.max > 1 for queue in case.file.queues)
    if case.file.scaling == "best-effort" and several:
        yield Said(
            ("scaling",),
            "machines that come wait for those that do not, and are paid for; write all-or-nothing",
            "warning",
        )


def image_known(case: Case) -> Iterator[Said]:
    """ParallelCluster has an image of the operating system."""
    image = image_of(case.file)
    if image not in parallelcluster_images():
        known = parallelcluster_images()
        yield Said(
            ("image", "os"),
            f"ParallelCluster has no image of {image!r}{did_you_mean(image, known)} "
            f"There are: {', '.join(known)}",
        )


def image_bootstrap(case: Case) -> Iterator[Said]:
    """The bootstrap scripts install on it."""
    image = image_of(case.file)
    if image in parallelcluster_images() and image not in _BOOTSTRAPPED:
        yield Said(
            ("image", "os"), f"kitae installs on {' and '.join(_BOOTSTRAPPED)}, not on {image}; write one"
        )


def neuron_sdk(case: Case) -> Iterator[Said]:
    """The SDK is known, and trains on the machines."""
    given = case.file.bootstrap.neuron
    where = ("bootstrap", "neuron")
    if given != "auto" and given not in KNOWN:
        yield Said(
            where,
            f"no Neuron SDK {given!r} is known{did_you_mean(given, KNOWN)} There are: {', '.join(KNOWN)}",
        )
        return
    for queue in case.file.queues:
        sdk, machine = sdk_of(case.file, queue), machine_of(queue)
        if sdk is None or machine is None:
            continue
        if machine.backend == "xla" and _newer(sdk, LAST_OF_TRN1):
            yield Said(
                where,
                f"Neuron SDK {sdk} does not train on {machine.name}: {LAST_OF_TRN1} is the last "
                "that may; write auto",
            )
        if machine.backend == "neuron" and sdk not in NATIVE:
            yield Said(where, f"Neuron SDK {sdk} has no native PyTorch for {machine.name}; write auto")


def _newer(one: str, other: str) -> bool:
    return [int(part) for part in one.split(".")] > [int(part) for part in other.split(".")]


def static_idle(case: Case) -> Iterator[Said]:
    """The idle stop reaches no machine that is always on."""
    if case.file.limits.idle_stop is None:
        return
    for index, queue in enumerate(case.file.queues):
        if queue.min > 0 and queue.capacity.kind != "capacity-block":
            yield Said(
                ("queues", index, "min"),
                f"{queue.min} machines of {queue.name} are on, and paid for, also "
                "without a job: limits.idle_stop does not reach them; write min: 0, or idle_stop: null",
            )


def vcpus(case: Case) -> Iterator[Said]:
    """How many vCPU the account must be allowed to run."""
    for kind in ("on-demand", "spot"):
        for code, (name, need) in vcpu_need(case, spot=kind == "spot").items():
            yield Said(
                ("queues",),
                f"the account needs {need} vCPU of {name!r} ({code}); new accounts have 0: "
                "kitae cluster quota asks it",
                "note",
            )


def vcpu_need(case: Case, *, spot: bool) -> dict[str, tuple[str, int]]:
    """Most vCPU, by the code of the quota that counts them, with its name."""
    needs: dict[str, tuple[str, int]] = {}
    for queue in case.file.queues:
        machine = machine_of(queue)
        if machine is None or queue.capacity.kind != ("spot" if spot else "on-demand"):
            continue
        quota = vcpu_quota(machine.name, spot=spot)
        if quota is not None:
            _, before = needs.get(quota.code, ("", 0))
            needs[quota.code] = (quota.name, before + queue.max * machine.vcpus)
    return needs
