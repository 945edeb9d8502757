"""`kitae cluster check`: every rule on a cluster file, without an account."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from kitae.cluster import rules_limits, rules_machines, rules_network
from kitae.cluster.findings import Case, Finding, Rule
from kitae.cluster.load import LoadedCluster
from kitae.errors import RecipeError
from kitae.recipe.messages import dotted

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "cluster-name": rules_network.cluster_name,
        "region": rules_network.region_known,
        "one-zone": rules_network.one_zone,
        "zone": rules_network.zone_of_region,
        "queue-names": rules_machines.queue_names,
        "instance-type": rules_machines.instance_type,
        "head-instance": rules_machines.head_instance,
        "type-in-zone": rules_network.type_in_zone,
        "efa-type": rules_machines.efa_type,
        "small-multi-node": rules_machines.small_multi_node,
        "efa-off": rules_machines.efa_off,
        "placement": rules_machines.placement,
        "capacity-id": rules_machines.capacity_id,
        "capacity-block-size": rules_machines.capacity_block_size,
        "capacity-block-end": rules_machines.capacity_block_end,
        "all-or-nothing": rules_machines.scaling,
        "static-idle": rules_machines.static_idle,
        "image": rules_machines.image_known,
        "image-bootstrap": rules_machines.image_bootstrap,
        "neuron-sdk": rules_machines.neuron_sdk,
        "subnets": rules_network.subnets_together,
        "security-group-self": rules_network.security_group_self,
        "network-size": rules_network.network_size,
        "ssh-open": rules_network.ssh_open,
        "ssh-key": rules_network.ssh_key,
        "tags": rules_network.tags,
        "fsx-size": rules_limits.fsx_size,
        "fsx-throughput": rules_limits.fsx_throughput,
        "fsx-mount": rules_limits.fsx_mount,
        "fsx-s3": rules_limits.fsx_s3,
        "fsx-keep": rules_limits.fsx_keep,
        "scripts": rules_limits.scripts,
        "save": rules_limits.save_from,
        "until": rules_limits.until,
        "price-unknown": rules_limits.price_unknown,
        "price-region": rules_limits.price_region,
        "cost": rules_limits.cost,
        "quota": rules_machines.vcpus,
        "zones-unknown": rules_network.unknown_machine,
    }
)


def check(loaded: LoadedCluster, now: datetime) -> list[Finding]:
    """What the rules say of a cluster file, in the order of its lines."""
    case = Case(loaded.file, now)
    found = [
        Finding(name, said.level, said.where, said.message)
        for name, rule in RULES.items()
        for said in rule(case)
    ]
    return sorted(found, key=lambda one: loaded.line(one.where))


def line_of(loaded: LoadedCluster, finding: Finding) -> str:
    """A finding as it is printed: place, key, what is wrong and the way out, the rule."""
    return f"{loaded.place(finding.where)}: {dotted(finding.where)}: {finding.message} [{finding.rule}]"


def refuse_errors(loaded: LoadedCluster, findings: list[Finding]) -> None:
    """Raise one `RecipeError` with every finding that is an error."""
    lines = [line_of(loaded, one) for one in findings if one.level == "error"]
    if lines:
        head = [f"{len(lines)} things are wrong:"] if len(lines) > 1 else []
        raise RecipeError("\n  ".join([*head, *lines]))
