"""A change of a cluster, done: the switch first, then what deletes nothing, then ParallelCluster's part."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from kitae.cluster import up as making
from kitae.cluster.bucket import make_bucket
from kitae.cluster.checking import write_config
from kitae.cluster.engine_calls import Cluster, first_failure
from kitae.cluster.extend import move
from kitae.cluster.fleet import await_fleet
from kitae.cluster.guard import publish_limits
from kitae.cluster.kept import begin_change, change_begun, end_change, keep
from kitae.cluster.network import network_template
from kitae.cluster.resolved import makes_network
from kitae.cluster.saving import save
from kitae.cluster.stacks import change_stack
from kitae.cluster.update import Update, standing
from kitae.errors import ClusterError

_STOPPED = "STOPPED"
_RESTART = "restart"


@dataclass(frozen=True)
class Leave:
    """What a person allowed beforehand."""

    stop_fleet: bool = False
    delete_data: bool = False
    saving: bool = True


def change(update: Update, leave: Leave) -> None:
    """Do it. Raises `ClusterError` with the first real failure; the same command goes on."""
    build = update.build
    _move_switch(update)
    if update.deletes and leave.saving:
        _save(update)
    _change_network(update)
    publish_limits(build.account, build.bucket, build.file)
    path = write_config(build.path, dict(update.config), update.site)
    _stop_fleet(update, leave)
    if update.rows:
        build.clusters.update(
            build.file.name, path, build.suppress, force=update.forced and leave.delete_data
        )
        _follow(update)
    _start_fleet(update)
    keep(build.account, build.file)
    end_change(build.account, build.file.name)


def _move_switch(update: Update) -> None:
    """Before anything that bills more: the end, and what the money says of it."""
    step = update.step
    before, after = update.old.limits, update.new.limits
    if step.until != step.ends.until or before != after:
        move(update.build.account, step, update.build.say)


def _save(update: Update) -> None:
    head = update.cluster.head_instance
    if update.old.save and head is not None:
        save(update.build.account, head, update.old.save, update.build.say)


def _change_network(update: Update) -> None:
    """Who may come in, and tags."""
    build, new = update.build, update.new
    tags = build.names.tags(new.tags)
    if new.tags != update.old.tags:
        make_bucket(build.account, build.bucket, tags)
    if not makes_network(new) or network_template(new) == network_template(update.old):
        return
    change_stack(build.account, build.names.network_stack, network_template(new), tags, ["Zone"])
    build.say(f"{build.names.network_stack}: is changed")


def _stop_fleet(update: Update, leave: Leave) -> None:
    build = update.build
    if not update.stops:
        return
    if not leave.stop_fleet:
        raise ClusterError(f"the fleet of {build.file.name} runs, and has to be stopped for this")
    begin_change(build.account, build.file.name, {_RESTART: True})
    build.say(f"{build.file.name}: the fleet stops")
    build.clusters.fleet(build.file.name, start=False)
    begun = time.monotonic()
    while standing(build.clusters, build.file.name).fleet != _STOPPED:
        if time.monotonic() - begun > making.PATIENCE_S:
            raise ClusterError(f"the fleet of {build.file.name} does not stop; nothing else was changed")
        time.sleep(making.PAUSE_S)


def _follow(update: Update) -> Cluster:
    """Wait until the change is done, and tell what happens."""
    build, begun, told = update.build, time.monotonic(), 0
    name = build.file.name
    told = len(build.clusters.events(name)) if update.cluster.status == "UPDATE_FAILED" else 0
    while True:
        found = build.clusters.find(name)
        if found is None:
            raise ClusterError(
                f"{name} is gone while it was changed; kitae cluster leftovers shows what is left"
            )
        events = build.clusters.events(name)
        for event in events[told:]:
            build.say(f"  {event}")
        fresh, told = events[told:], max(told, len(events))
        if found.status == "UPDATE_COMPLETE":
            return found
        if not found.in_progress:
            why = first_failure(fresh) or first_failure(events) or "no reason is given"
            raise ClusterError(_failed(update, found, why))
        if time.monotonic() - begun > making.PATIENCE_S:
            raise ClusterError(f"{name} has been {found.status} for {making.PATIENCE_S / 60:.0f} minutes")
        time.sleep(making.PAUSE_S)


def _failed(update: Update, found: Cluster, why: str) -> str:
    name = update.new.name
    stopped = ""
    if change_begun(update.build.account, name).get(_RESTART):
        stopped = f"; its fleet is stopped, and kitae cluster start {name} starts it again"
    return (
        f"{name} could not be changed ({found.status}), and is as it was: {why}{stopped}; mend that and "
        "repeat the command"
    )


def _start_fleet(update: Update) -> None:
    """As it was before; machines that are always on are waited for where they are paid."""
    build = update.build
    restarts = bool(change_begun(build.account, build.file.name).get(_RESTART))
    if restarts:
        build.say(f"{build.file.name}: the fleet starts again")
        build.clusters.fleet(build.file.name, start=True)
    if update.rows and (restarts or update.cluster.fleet != _STOPPED):
        await_fleet(build.account, build.clusters, build.file, build.say, time.monotonic)


def unfinished(update: Update) -> bool:
    """Whether a change that was begun, and killed, left something to put right."""
    return bool(change_begun(update.build.account, update.new.name))


def config_for_trial(update: Update, folder: Path) -> Path:
    """The configuration, for ParallelCluster to look at."""
    return write_config(folder / "cluster.yaml", dict(update.config), update.site)
