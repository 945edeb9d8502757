"""Service quotas of an account against what a cluster needs, and requests for more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from kitae.catalog.aws import Quota, network_quotas, vcpu_quota
from kitae.catalog.instances import instances
from kitae.cluster.aws import Account, error_code, plainly
from kitae.cluster.resolved import machine_of, makes_network
from kitae.cluster.schema import ClusterFile

_PENDING = ("PENDING", "CASE_OPENED")


@dataclass(frozen=True)
class Need:
    """What a cluster takes of a quota."""

    quota: Quota
    amount: int
    what: str


@dataclass(frozen=True)
class Standing:
    """A quota of the account."""

    need: Need
    allowed: float | None
    """None: AWS does not tell."""
    used: int
    asked: float | None
    """What was requested and is not decided yet."""

    @property
    def wanted(self) -> int:
        """What the quota has to be."""
        return self.used + self.need.amount

    @property
    def enough(self) -> bool:
        """Whether it is."""
        return self.allowed is not None and self.allowed >= self.wanted


def needs(file: ClusterFile) -> list[Need]:
    """What a cluster takes of each quota, added up over queues and the head node."""
    sums: dict[str, tuple[Quota, int, list[str]]] = {}
    for name, count, spot in _machines(file):
        quota, machine = vcpu_quota(name, spot=spot), instances().get(name)
        if quota is not None and machine is not None:
            _, amount, words = sums.get(quota.code, (quota, 0, []))
            sums[quota.code] = (quota, amount + count * machine.vcpus, [*words, f"{count} x {name}"])
    found = [Need(quota, amount, " and ".join(words)) for quota, amount, words in sums.values()]
    if makes_network(file):
        found += [Need(quota, 1, "the network") for quota in network_quotas()]
    return found


def _machines(file: ClusterFile) -> Iterator[tuple[str, int, bool]]:
    """Type, number and whether they are spot, of what counts in the quotas; reserved blocks do not."""
    yield file.head.instance, 1, False
    for queue in file.queues:
        if machine_of(queue) is not None and queue.capacity.kind != "capacity-block":
            yield queue.instance, queue.max, queue.capacity.kind == "spot"


def standing(account: Account, need: Need) -> Standing:
    """How the account stands to a need."""
    return Standing(
        need, _allowed(account, need.quota), _used(account, need.quota), _asked(account, need.quota)
    )


def request(account: Account, found: Standing) -> float:
    """Ask for what is needed; the value that was asked for. It costs nothing."""
    value = float(found.wanted)
    with plainly(f"asking for {value:g} of {found.need.quota.name!r}"):
        account.client("service-quotas").request_service_quota_increase(
            ServiceCode=found.need.quota.service, QuotaCode=found.need.quota.code, DesiredValue=value
        )
    return value


def _allowed(account: Account, quota: Quota) -> float | None:
    from botocore.exceptions import ClientError

    client = account.client("service-quotas")
    wanted = {"ServiceCode": quota.service, "QuotaCode": quota.code}
    # An account that never had another than the default has no value of its own.
    for ask in (client.get_service_quota, client.get_aws_default_service_quota):
        try:
            return float(ask(**wanted)["Quota"]["Value"])
        except ClientError as error:
            if error_code(error) != "NoSuchResourceException":
                return None
    return None


def _asked(account: Account, quota: Quota) -> float | None:
    from botocore.exceptions import ClientError

    client = account.client("service-quotas")
    try:
        answer = client.list_requested_service_quota_change_history_by_quota(
            ServiceCode=quota.service, QuotaCode=quota.code
        )
    except ClientError:
        return None
    pending = [one["DesiredValue"] for one in answer["RequestedQuotas"] if one["Status"] in _PENDING]
    return max(pending, default=None)


def _used(account: Account, quota: Quota) -> int:
    if quota.code == "L-F678F1CE":
        return len(account.pages("ec2", "describe_vpcs", "Vpcs"))
    if quota.code == "L-0263D0A3":
        return len(account.pages("ec2", "describe_addresses", "Addresses"))
    return _vcpus_running(account, quota)


def _vcpus_running(account: Account, quota: Quota) -> int:
    alive = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    groups = account.pages("ec2", "describe_instances", "Reservations", Filters=alive)
    running = Counter(
        one["InstanceType"]
        for one in (one for group in groups for one in group["Instances"])
        if _counts(one["InstanceType"], one.get("InstanceLifecycle") == "spot", quota)
    )
    if not running:
        return 0
    types = account.pages("ec2", "describe_instance_types", "InstanceTypes", InstanceTypes=sorted(running))
    return sum(running[one["InstanceType"]] * one["VCpuInfo"]["DefaultVCpus"] for one in types)


def _counts(instance: str, is_spot: bool, quota: Quota) -> bool:
    counted = vcpu_quota(instance, spot=is_spot)
    return counted is not None and counted.code == quota.code
