"""The commented cluster file that `kitae cluster init` writes."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

from kitae.catalog import instance, price_of
from kitae.catalog.aws import fleet_types, offered_regions, offered_zones, regions, zone_prefix
from kitae.errors import RecipeError
from kitae.suggest import did_you_mean

_HEAD = "c5.4xlarge"
_HOURS = 12
_FSX_GB = 1200


@dataclass(frozen=True)
class Wish:
    """What the file is to be for."""

    name: str = "kitae"
    region: str = "us-west-2"
    instance: str = "trn1.32xlarge"
    nodes: int = 4


def starter_text(wish: Wish) -> str:
    """The file. Raises `RecipeError` for a type or region that does not exist, or do not go together."""
    types = [one.name for one in fleet_types()]
    if wish.instance not in types:
        raise RecipeError(
            f"--instance: no type is called {wish.instance!r}{did_you_mean(wish.instance, types)}"
        )
    if wish.region not in regions():
        raise RecipeError(
            f"--region: no region is called {wish.region!r}{did_you_mean(wish.region, regions())}"
        )
    where = offered_regions(wish.instance)
    if where is not None and wish.region not in where:
        raise RecipeError(
            f"--region: {wish.instance} is not offered in {wish.region}, but in {', '.join(where)}"
        )
    if wish.nodes > 1 and not instance(wish.instance).efa:
        raise RecipeError(
            f"--nodes: several {wish.instance} cannot train together, for they have no EFA; 1 can"
        )
    return _TEMPLATE.format(
        name=wish.name,
        region=wish.region,
        zone=_zone(wish),
        head=_HEAD,
        instance=wish.instance,
        nodes=wish.nodes,
        fsx_gb=_FSX_GB,
        hours=_HOURS,
        usd=_limit(wish),
        prices=_prices(wish),
    )


def _zone(wish: Wish) -> str:
    prefix = zone_prefix(wish.region)
    here = [zone for zone in offered_zones(wish.instance) or () if zone.startswith(f"{prefix}-")]
    return here[-1] if here else f"{prefix}-az1"


def _limit(wish: Wish) -> int:
    """Twelve hours of everything, up to the next hundred dollars."""
    node = price_of(wish.instance)
    found = [price_of(_HEAD), price_of("nat")]
    hourly = sum((one.usd for one in found if one is not None), Decimal(0))
    hourly += Decimal(0) if node is None else node.usd * wish.nodes
    storage = price_of("fsx-scratch")
    hourly += Decimal(0) if storage is None else storage.usd * _FSX_GB / 730
    return max(100, int((hourly * _HOURS / 100).to_integral_value(ROUND_CEILING)) * 100)


def _prices(wish: Wish) -> str:
    if price_of(wish.instance) is not None:
        return "prices: {}"
    return f"prices:\n  {wish.instance}:  # US dollars an hour: `kitae cluster quota` prints it"


_TEMPLATE = """\
# A cluster for kitae. `kitae cluster check` says what is wrong with it; every key is in docs/cluster-file.md.
kitae_cluster: 1
name: {name}

# All machines are in one zone. Ids such as {zone} are the same everywhere, names such as {region}a are not.
region: {region}
zone: {zone}

head:
  instance: {head}
  disk_gb: 200
  # To come in by ssh: a key pair of the region, and your own address. Without them: AWS's session manager.
  # ssh_key: my-key
  # allow_ssh_from: [203.0.113.7/32]

queues:
  - name: train
    instance: {instance}
    # Machines that are always on. 0: none while no job waits.
    min: 0
    max: {nodes}
    # capacity: {{kind: reservation, id: cr-0123456789abcdef0}}   # or on-demand, spot, capacity-block

# Fast storage that all nodes see. It bills from up to down, whatever runs. `fsx: null` does without.
fsx:
  size_gb: {fsx_gb}
  type: SCRATCH_2
  mount: /fsx
  at_down: delete

# What `kitae cluster down` saves before it deletes anything.
# save:
#   - from_folder: /fsx/runs
#     to: s3://my-bucket/runs

limits:
  # AWS itself deletes the cluster then, also when this machine and the head node are gone.
  until: {hours} hours
  # All that it may cost until then, with every queue full. More is refused.
  max_cost_usd: {usd}
  # Nodes without a job are given back.
  idle_stop: 10 minutes

# US dollars where the catalogue has no price, or another: {{m6i.4xlarge: 0.768}}
{prices}

# tags: {{team: research}}
"""
