"""Logs of a cluster's nodes in CloudWatch, where they stay when the nodes have gone.

ParallelCluster names its group after the cluster and the minute in which it was made, and each stream
after host, machine and log: `ip-10-0-0-1.i-0123456789abcdef0.slurmctld`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from kitae.cluster.aws import Account, plainly
from kitae.cluster.names import ENGINE_TAG
from kitae.errors import ClusterError

PAUSE_S = 5.0
_AT_ONCE = 8
_MOST = 10_000
"""Lines that CloudWatch gives at a time."""
BOOTSTRAP = "bootstrap"
_NAME = re.compile(r"(?P<host>.+)\.(?P<machine>i-[0-9a-f]{8,17})\.(?P<log>[^.]+)")
# What a person asks for, and the logs in which ParallelCluster tells of it.
LOGS = {
    BOOTSTRAP: ("bootstrap_error_msg", "cloud-init", "cloud-init-output", "cfn-init", "chef-client"),
    "slurm": ("slurmctld", "slurmd", "slurm_resume", "slurm_suspend"),
    "fleet": ("clustermgtd", "clusterstatusmgtd", "slurm_resume", "computemgtd"),
    "system": ("system-messages", "syslog"),
}


@dataclass(frozen=True)
class Stream:
    """One log of one machine."""

    group: str
    name: str
    host: str
    machine: str
    """`i-...`; empty where the name does not tell."""
    log: str
    first: datetime | None
    last: datetime | None


@dataclass(frozen=True)
class LogLine:
    """One line of a log."""

    time: datetime
    stream: Stream
    text: str

    def shown(self) -> str:
        """As it is printed."""
        return f"{self.time:%m-%d %H:%M:%S} {self.stream.host} {self.stream.log}: {self.text}"


@dataclass(frozen=True)
class Wanted:
    """Which logs."""

    node: str = ""
    """`head`, a machine's id, its host name, or the beginning of one; empty: all."""
    logs: tuple[str, ...] = ()
    """Keys of `LOGS`, or names of logs; none: all."""
    since: datetime | None = None


def groups_of(account: Account, name: str) -> list[str]:
    """The cluster's groups, the newest last."""
    prefix = f"/aws/parallelcluster/{name}-"
    found = account.pages("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=prefix)
    mine = [str(one["logGroupName"]) for one in found]
    return sorted(one for one in mine if re.fullmatch(rf"{re.escape(prefix)}\d{{12}}", one))


def streams_of(account: Account, name: str) -> list[Stream]:
    """All logs of the cluster that stands, or stood last; none where it has no group."""
    groups = groups_of(account, name)
    if not groups:
        return []
    found = account.pages("logs", "describe_log_streams", "logStreams", logGroupName=groups[-1])
    return [_stream(groups[-1], one) for one in found]


def chosen(account: Account, name: str, wanted: Wanted) -> list[Stream]:
    """The logs that are wanted. Raises `ClusterError` that says which there are where none is."""
    streams = streams_of(account, name)
    if not streams:
        raise ClusterError(
            f"there are no logs of {name} in {account.region}: nodes write them once they start, and they "
            "stay 14 days at most"
        )
    head = _head(account, name) if wanted.node == "head" else ""
    names = [each for one in wanted.logs for each in LOGS.get(one, (one,))]
    found = [one for one in streams if _of_node(one, wanted.node, head) and (not names or one.log in names)]
    if not found:
        hosts = ", ".join(sorted({one.host for one in streams if one.host}))
        logs = ", ".join(sorted({one.log for one in streams}))
        raise ClusterError(f"no log of {name} is that; nodes: {hosts}; logs: {logs}")
    return found


def lines(account: Account, streams: Sequence[Stream], since: datetime | None = None) -> Iterator[LogLine]:
    """Lines of these logs in the order of their times."""
    begin = {} if since is None else {"startTime": int(since.timestamp() * 1000)}
    found = [line for one in streams for line in _of_stream(account, one, begin)]
    return iter(sorted(found, key=lambda line: (line.time, line.stream.name)))


def tails(account: Account, streams: Sequence[Stream], count: int) -> list[LogLine]:
    """The last lines of all these logs together, without reading them from their beginnings."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        ends = pool.map(lambda stream: _end_of(account, stream, count), streams)
        found = [line for end in ends for line in end]
    return sorted(found, key=lambda line: (line.time, line.stream.name))[-count:]


def follow(
    account: Account,
    streams: Callable[[], Sequence[Stream]],
    since: datetime,
    say: Callable[[LogLine], None],
    go_on: Callable[[], bool] = lambda: True,
) -> None:
    """Print lines as they come, from nodes that come later, too, until somebody stops it."""
    seen: dict[tuple[str, datetime, str], int] = {}
    at = since
    while go_on():
        for line in lines(account, streams(), at):
            key = (line.stream.name, line.time, line.text)
            if key not in seen:
                seen[key] = 1
                say(line)
        # CloudWatch takes some lines in late.
        at = max([at, *(key[1] - timedelta(minutes=2) for key in seen)])
        seen = {key: 1 for key in seen if key[1] >= at}
        time.sleep(PAUSE_S)


def _of_stream(account: Account, stream: Stream, begin: dict[str, int]) -> Iterator[LogLine]:
    client, token = account.client("logs"), None
    while True:
        more: dict[str, str] = {} if token is None else {"nextToken": token}
        with plainly(f"reading the log {stream.name}"):
            answer = client.get_log_events(
                logGroupName=stream.group, logStreamName=stream.name, startFromHead=True, **begin, **more
            )
        for event in answer["events"]:
            yield LogLine(_moment(event["timestamp"]), stream, event["message"].rstrip())
        if not answer["events"] or answer["nextForwardToken"] == token:
            return
        token = answer["nextForwardToken"]


def _end_of(account: Account, stream: Stream, count: int) -> list[LogLine]:
    with plainly(f"reading the log {stream.name}"):
        answer = account.client("logs").get_log_events(
            logGroupName=stream.group, logStreamName=stream.name, startFromHead=False, limit=min(count, _MOST)
        )
    return [
        LogLine(_moment(event["timestamp"]), stream, event["message"].rstrip()) for event in answer["events"]
    ]


def _stream(group: str, one: dict[str, Any]) -> Stream:
    name = str(one["logStreamName"])
    parts = _NAME.fullmatch(name)
    host, machine, log = parts.group("host", "machine", "log") if parts else ("", "", name)
    first, last = (
        None if one.get(key) is None else _moment(one[key])
        for key in ("firstEventTimestamp", "lastEventTimestamp")
    )
    return Stream(group, name, host, machine, log, first, last)


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)


def _of_node(stream: Stream, node: str, head: str) -> bool:
    if not node:
        return True
    if node == "head":
        return stream.machine == head
    return stream.machine == node or stream.host.startswith(node)


def _head(account: Account, name: str) -> str:
    """The head node's machine; empty where it is gone."""
    wanted = [
        {"Name": f"tag:{ENGINE_TAG}", "Values": [name]},
        {"Name": "tag:parallelcluster:node-type", "Values": ["HeadNode"]},
    ]
    groups = account.pages("ec2", "describe_instances", "Reservations", Filters=wanted)
    return next((str(one["InstanceId"]) for group in groups for one in group["Instances"]), "")
