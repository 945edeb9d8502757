"""`kitae cluster up`: from a file to a running cluster. What ends it is made first.

Every step looks whether its result is there already, in the account: a second `up`, from any machine, goes
on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

from kitae.cluster.aws import Account
from kitae.cluster.bucket import make_bucket, publish
from kitae.cluster.budget import Budget
from kitae.cluster.checking import money_lines, write_config
from kitae.cluster.config import Site, config_of
from kitae.cluster.costs import bill
from kitae.cluster.diff import changes
from kitae.cluster.engine_calls import Cluster, Clusters, Runs, first_failure
from kitae.cluster.extend import told
from kitae.cluster.fleet import FleetWatch, await_fleet
from kitae.cluster.guard import publish_limits
from kitae.cluster.kept import keep, kept
from kitae.cluster.moments import end_of, moment, shown
from kitae.cluster.money import dollars, tariff
from kitae.cluster.names import Names
from kitae.cluster.network import network_template
from kitae.cluster.policy import Scope
from kitae.cluster.reasons import why
from kitae.cluster.resolved import makes_network
from kitae.cluster.schema import ClusterFile
from kitae.cluster.spans import spans_of
from kitae.cluster.stacks import delete_stack, find_stack, make_stack
from kitae.cluster.switch import instant, switch_template
from kitae.cluster.troubles import words_for
from kitae.cluster.zones import zone_name
from kitae.errors import ClusterError, RecipeError

Say = Callable[[str], None]
PAUSE_S = 15.0
PATIENCE_S = 5400.0
_STANDS = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_FAILED")


@dataclass(frozen=True)
class Build:
    """A cluster in the making."""

    account: Account
    engine: Runs
    file: ClusterFile
    path: Path
    """Of the cluster file."""
    now: datetime
    say: Say
    suppress: tuple[str, ...] = ()
    """Validators of ParallelCluster to leave out."""

    @property
    def names(self) -> Names:
        """What is called how."""
        return Names(self.file.name)

    @property
    def clusters(self) -> Clusters:
        """ParallelCluster, in the cluster's region."""
        return Clusters(self.engine, self.file.region)

    @property
    def bucket(self) -> str:
        """Name of the cluster's bucket."""
        return self.names.bucket(self.account.number, self.file.region)


def plan_lines(file: ClusterFile, now: datetime) -> list[str]:
    """What `up` would make, in its order, and what that costs."""
    names, end = Names(file.name), end_of(file.limits.until, now)
    network = f"the network as stack {names.network_stack}: subnets in {file.zone}, NAT gateway, groups"
    if not makes_network(file):
        network = (
            f"nothing of a network: {file.network.public_subnet} and {file.network.private_subnet} are used"
        )
    queues = ", ".join(
        f"{queue.name} ({queue.min} to {queue.max} x {queue.instance})" for queue in file.queues
    )
    fsx = "" if file.fsx is None else f", FSx of {file.fsx.size_gb} GB"
    return [
        f"in region {file.region}:",
        f"  1. the switch that ends it all by itself at {shown(end)}, as stack {names.switch_stack}",
        "  2. a bucket with the scripts of the nodes",
        f"  3. {network}",
        f"  4. the cluster {file.name}: head node {file.head.instance}, queues {queues}{fsx}",
        *money_lines(file, now),
    ]


def dry_run(build: Build) -> str:
    """Let ParallelCluster look whether the cluster could be made; what it was asked with. Makes nothing.

    Raises `ClusterError` with what it refuses.
    """
    trial = _subnets_to_try(build)
    config = config_of(
        build.file, Site(trial.public, trial.private, "", tuple(build.file.network.security_groups))
    )
    # Neither bucket nor groups of an own network are there before `up`.
    del config["CustomS3Bucket"]
    for part in (config["HeadNode"], *config["Scheduling"]["SlurmQueues"]):
        del part["CustomActions"]
        part["Iam"]["S3Access"] = [one for one in part["Iam"]["S3Access"] if one["BucketName"]]
    with TemporaryDirectory() as folder:
        path = Path(folder, "cluster.pcluster.yaml")
        path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
        build.clusters.create(build.file.name, path, (*build.suppress, *trial.suppress), dry_run=True)
    return trial.how


@dataclass(frozen=True)
class _Trial:
    """Subnets for a dry run."""

    public: str
    private: str
    how: str
    suppress: tuple[str, ...] = ()


def _subnets_to_try(build: Build) -> _Trial:
    network = build.file.network
    if network.public_subnet is not None and network.private_subnet is not None:
        return _Trial(network.public_subnet, network.private_subnet, "with the subnets of the file")
    zone = zone_name(build.account, build.file.zone) or build.file.zone
    here = [{"Name": "availability-zone", "Values": [zone]}]
    found = build.account.pages("ec2", "describe_subnets", "Subnets", Filters=here)
    if not found:
        raise ClusterError(
            f"ParallelCluster's dry run needs a subnet, and there is none in {build.file.zone} yet; "
            "kitae cluster check and quota do without"
        )
    quiet = next((one for one in found if not one["MapPublicIpOnLaunch"]), None)
    private = quiet or found[0]
    public = next((one for one in found if one["VpcId"] == private["VpcId"] and one is not quiet), private)
    # The subnet that is made gives no public addresses; one that stands in its place may.
    suppress = () if quiet is not None else ("MultiNetworkInterfacesInstancesValidator",)
    ids = " and ".join(dict.fromkeys((str(public["SubnetId"]), str(private["SubnetId"]))))
    return _Trial(
        str(public["SubnetId"]),
        str(private["SubnetId"]),
        f"with {ids} in the place of subnets not made yet",
        suppress,
    )


def up(build: Build) -> Cluster:
    """Make the cluster, or go on making it. Raises `ClusterError` with the first real failure and cost."""
    refuse_foreign(build)
    refuse_changed(build)
    set_switch(build)
    site = prepare(build)
    path = write_config(build.path, config_of(build.file, site), site)
    found = build.clusters.find(build.file.name)
    if found is None:
        # An earlier attempt may have been of another file.
        keep(build.account, build.file)
        build.say(f"{build.file.name}: ParallelCluster begins; it takes about 10 to 25 minutes")
        build.clusters.create(build.file.name, path, build.suppress)
    made = follow(build)
    await_fleet(build.account, build.clusters, build.file, build.say, time.monotonic)
    return made


def refuse_foreign(build: Build) -> None:
    """Raise `ClusterError` where a stack of the cluster's name is another's: the switch would delete it."""
    name = build.names.cluster_stack
    stack = find_stack(build.account, name)
    if stack is not None and build.clusters.find(build.file.name) is None:
        raise ClusterError(
            f"a stack {name} is there ({stack.status}) that is no cluster of ParallelCluster; take another "
            "name"
        )


def refuse_changed(build: Build) -> None:
    """Raise `RecipeError` where the cluster is there, made of a file that says something else."""
    file = kept(build.account, build.file.name)
    if file is None or find_stack(build.account, build.names.cluster_stack) is None:
        return
    # The end may have been moved since.
    differs = [one.line() for one in changes(file, build.file) if one.where[0] not in ("limits", "prices")]
    if differs:
        raise RecipeError(
            f"{build.path}: {build.file.name} is there, made of another file: {'; '.join(differs)}; kitae "
            "cluster update shows what that does, and makes it so"
        )


def set_switch(build: Build) -> None:
    """What ends the cluster, before anything that bills. One that is set already stays as it is."""
    _discard_spent_switch(build)
    wanted = end_of(build.file.limits.until, build.now)
    # What was paid before, for what an earlier attempt left, is in nothing that this one makes.
    budget = Budget(Decimal(str(build.file.limits.max_cost_usd)), Decimal(0), tariff(build.file).full_usd)
    end = budget.end(wanted, build.now)
    scope = Scope.of(build.file, build.account.number)
    tags = build.names.tags(build.file.tags)
    template = switch_template(scope, end, tags, told(wanted, budget.most_usd))
    stack = make_stack(build.account, build.names.switch_stack, template, tags, build.say)
    build.say(f"the switch is set: AWS ends {build.file.name} from {stack.outputs['Until']} on")
    if stack.outputs["Until"] == instant(end):  # made now
        build.say(budget.words(wanted, build.now))


def _discard_spent_switch(build: Build) -> None:
    """One of an earlier cluster, which is over or put itself to rest, would end this at once, or never."""
    name = build.names.switch_stack
    stack = find_stack(build.account, name)
    if stack is None:
        return
    until = stack.outputs.get("Until")
    over = until is None or moment(until) <= build.now
    schedules = build.account.pages("scheduler", "list_schedules", "Schedules", NamePrefix=name)
    if over or not any(one["Name"] == name for one in schedules):
        build.say(f"{name}: that of an earlier cluster goes first")
        delete_stack(build.account, name, build.say)


def prepare(build: Build) -> Site:
    """Bucket and network; what the configuration names of them."""
    from kitae.launch.ssh.wheel import make_wheel

    tags = build.names.tags(build.file.tags)
    make_bucket(build.account, build.bucket, tags)
    if kept(build.account, build.file.name) is None:
        keep(build.account, build.file)
    publish_limits(build.account, build.bucket, build.file)
    with TemporaryDirectory() as folder:
        scripts, wheel = publish(build.account, build.bucket, make_wheel(Path(folder)))
    build.say(f"scripts and kitae are in s3://{build.bucket}")
    site = replace(_network(build, tags), bucket=build.bucket, scripts=scripts)
    return replace(site, wheel=wheel)


def _network(build: Build, tags: dict[str, str]) -> Site:
    network = build.file.network
    if network.public_subnet is not None and network.private_subnet is not None:
        return Site(network.public_subnet, network.private_subnet, "", tuple(network.security_groups))
    zone = zone_name(build.account, build.file.zone)
    if zone is None:
        raise RecipeError(f"this account has no zone {build.file.zone} in {build.file.region}; name another")
    stack = make_stack(
        build.account,
        build.names.network_stack,
        network_template(build.file),
        tags,
        build.say,
        {"Zone": zone},
    )
    out = stack.outputs
    return Site(out["PublicSubnet"], out["PrivateSubnet"], "", (out["NodesGroup"],), (out["SshGroup"],))


def follow(build: Build) -> Cluster:
    """Wait until the cluster stands, and tell what happens. Machines that do not come are not waited for."""
    begun, told = time.monotonic(), 0
    watch = FleetWatch(build.account, build.clusters, build.file, time.monotonic)
    while True:
        found = build.clusters.look(build.file.name, lambda: time.sleep(PAUSE_S))
        if found is None:
            raise ClusterError(
                f"{build.file.name} is gone while it was made; kitae cluster leftovers shows what is left"
            )
        events = build.clusters.events(build.file.name)
        for event in events[told:]:
            build.say(f"  {event}")
        told = len(events)
        if found.status in _STANDS:
            return found
        if not found.in_progress:
            raise ClusterError(_why(build, found, events))
        if time.monotonic() - begun > PATIENCE_S:
            raise ClusterError(
                f"{build.file.name} has been {found.status} for {PATIENCE_S / 60:.0f} minutes "
                f"({_spent(build)} so far); kitae cluster down takes it away, and the switch ends it "
                "in any case"
            )
        # The head node waits for machines that are always on, however long it takes.
        watch.look(any_yet=False)
        time.sleep(PAUSE_S)


def _why(build: Build, found: Cluster, events: Sequence[str]) -> str:
    said = why(build.account, build.names.cluster_stack) or _by_the_engine(found, events)
    return (
        f"{build.file.name} could not be made ({found.status}): {said}; it cost about {_spent(build)} so "
        "far, and what stands of it bills on: kitae cluster down takes it away"
    )


def _by_the_engine(found: Cluster, events: Sequence[str]) -> str:
    first = first_failure(events) or "; ".join(found.failures) or "no reason is given"
    words = words_for(first)
    return first if words is None else f"{first}; {words}"


def _spent(build: Build) -> str:
    now = datetime.now(timezone.utc)
    return dollars(bill(spans_of(build.account, build.file, now), build.file.prices, now).spent_usd)
