"""The way in to a cluster by ssh: to its head node, and through it to any other.

What is where is asked of the account; ssh is the system's, with its own configuration.
"""

from __future__ import annotations

import ipaddress
import os
import shlex
import shutil
import subprocess
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kitae.cluster.aws import Account
from kitae.cluster.names import ENGINE_TAG
from kitae.cluster.resolved import image_of
from kitae.cluster.schema import ClusterFile
from kitae.errors import ClusterError
from kitae.launch.ssh.link import OPTIONS

_ASK_ADDRESS = "https://checkip.amazonaws.com"
_PORT = 22
_CONNECT_S = 20
_UNREACHED = 255
_USERS = {"ubuntu": "ubuntu", "alinux": "ec2-user", "rhel": "ec2-user", "rocky": "rocky"}
"""By the beginning of the operating system's name, as ParallelCluster's images have them."""


ON_HEAD = {
    "bootstrap": "/var/log/kitae-bootstrap.log",
    "slurm": "/var/log/slurmctld.log",
    "fleet": "/var/log/parallelcluster/clustermgtd",
    "system": "/var/log/syslog",
}
ON_NODE = {**ON_HEAD, "slurm": "/var/log/slurmd.log", "fleet": "/var/log/parallelcluster/computemgtd"}
"""Where the logs lie on the machines themselves."""


@dataclass(frozen=True)
class Door:
    """The head node."""

    name: str
    """Of the cluster."""
    machine: str
    address: str
    key: str
    """Name of its key pair; empty: it has none."""
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Visit:
    """Who goes where, with what."""

    door: Door
    user: str
    key: Path | None = None
    node: str = ""
    """A node behind it: an address, or a name that the head node knows; empty: the head node itself."""
    command: tuple[str, ...] = ()


def door_of(account: Account, name: str) -> Door:
    """The head node of a cluster. Raises `ClusterError` where there is none to go to."""
    found = _machines(account, name, "parallelcluster:node-type", "HeadNode")
    alive = [one for one in found if one["State"]["Name"] in ("pending", "running")]
    if not alive:
        states = ", ".join(one["State"]["Name"] for one in found)
        what = (
            f"the head node of {name} is {states}" if found else f"no cluster {name} is in {account.region}"
        )
        raise ClusterError(f"{what}; kitae cluster status and kitae cluster list show what there is")
    one = alive[0]
    address = one.get("PublicIpAddress") or one["PrivateIpAddress"]
    groups = tuple(str(group["GroupId"]) for group in one.get("SecurityGroups", ()))
    return Door(name, one["InstanceId"], address, one.get("KeyName", ""), groups)


def node_of(account: Account, name: str, node: str) -> str:
    """Where a node is: an id becomes its address; names are the head node's to know."""
    if not node.startswith("i-"):
        return node
    found = _machines(account, name, "parallelcluster:node-type", "Compute")
    for one in found:
        if one["InstanceId"] == node and one.get("PrivateIpAddress"):
            return str(one["PrivateIpAddress"])
    raise ClusterError(f"no machine {node} is in {name}; kitae cluster status lists those that are")


def user_of(file: ClusterFile | None) -> str:
    """Whom the images let in."""
    os_name = "ubuntu" if file is None else image_of(file)
    return next(user for start, user in _USERS.items() if os_name.startswith(start))


def key_of(door: Door, given: Path | None) -> Path | None:
    """The key: the given one, else the one of the pair's name in ~/.ssh; None: ssh knows itself.

    Raises `ClusterError` where there can be none.
    """
    if given is not None:
        if not given.is_file():
            raise ClusterError(f"--key: {given}: there is no such file; name the private key of {door.key}")
        return given
    if not door.key:
        raise ClusterError(
            f"{door.name} was made without a key pair (head.ssh_key), so nobody comes in by ssh; AWS's "
            f"session manager does: aws ssm start-session --target {door.machine}"
        )
    found = [Path.home() / ".ssh" / f"{door.key}{ending}" for ending in (".pem", "")]
    return next((one for one in found if one.is_file()), None)


def ranges(account: Account, door: Door) -> list[str]:
    """Addresses from which port 22 of the head node may be reached."""
    if not door.groups:
        return []
    found = account.pages("ec2", "describe_security_groups", "SecurityGroups", GroupIds=list(door.groups))
    return [
        str(one["CidrIp"])
        for group in found
        for rule in group["IpPermissions"]
        if _lets_ssh_in(rule)
        for one in rule["IpRanges"]
    ]


def own_address() -> str | None:
    """The address of this machine as AWS sees it; None where that cannot be found out."""
    try:
        with urllib.request.urlopen(_ASK_ADDRESS, timeout=5) as answer:
            return str(ipaddress.ip_address(answer.read(64).decode().strip()))
    except (OSError, ValueError):
        return None


def outside(address: str, allowed: Sequence[str]) -> bool:
    """Whether an address lies in none of the ranges."""
    here = ipaddress.ip_address(address)
    return not any(here in ipaddress.ip_network(one, strict=False) for one in allowed)


def warning(account: Account, door: Door) -> str | None:
    """What stands in the way of this machine's address; None where nothing does, or it is not known."""
    address = own_address()
    if address is None:
        return None
    allowed = ranges(account, door)
    if not outside(address, allowed):
        return None
    those = ", ".join(allowed) or "nobody"
    return (
        f"this machine's address is {address}, and {those} may come in by ssh: add {address}/32 to "
        "head.allow_ssh_from, then kitae cluster update"
    )


def ssh_words(visit: Visit) -> list[str]:
    """The command line of ssh."""
    door, own = visit.door, shlex.split(os.environ.get(OPTIONS, ""))
    key = [] if visit.key is None else ["-i", str(visit.key)]
    # Addresses are given anew to other machines; the machine's id never is.
    settings = {"ConnectTimeout": str(_CONNECT_S), "StrictHostKeyChecking": "accept-new"}
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    head = [*own, *key, *options, "-o", f"HostKeyAlias=kitae-{door.machine}"]
    place = f"{visit.user}@{door.address}"
    if not visit.node:
        return ["ssh", *head, place, *visit.command]
    through = shlex.join(["ssh", *head, "-W", "%h:%p", place])
    there = [*own, *key, *options, "-o", f"HostKeyAlias=kitae-{door.machine}-{visit.node}"]
    return ["ssh", *there, "-o", f"ProxyCommand={through}", f"{visit.user}@{visit.node}", *visit.command]


def go(visit: Visit) -> int:
    """Run ssh; its exit code, which is that of the command. Raises `ClusterError` without ssh."""
    if shutil.which("ssh") is None:
        raise ClusterError("there is no `ssh` here; install openssh-client")
    return subprocess.run(ssh_words(visit), check=False).returncode


def read(visit: Visit) -> tuple[int, list[str]]:
    """Run a command there; its exit code and the lines that it printed. Raises `ClusterError` without ssh."""
    if shutil.which("ssh") is None:
        raise ClusterError("there is no `ssh` here; install openssh-client")
    done = subprocess.run(ssh_words(visit), stdout=subprocess.PIPE, text=True, errors="replace", check=False)
    return done.returncode, done.stdout.splitlines()


def tail_words(logs: Sequence[str], lines: int, *, head: bool, follow: bool) -> tuple[str, ...]:
    """The command that prints the ends of logs that lie on a node. Raises `ClusterError` for others."""
    files = ON_HEAD if head else ON_NODE
    for log in logs:
        if log not in files:
            raise ClusterError(f"--log: {log!r} is not read on a node; those are: {', '.join(files)}")
    paths = [files[log] for log in logs or files]
    return ("sudo", "tail", "-n", str(lines), *(["-F"] if follow else []), *paths)


def unreached(code: int) -> bool:
    """Whether ssh itself failed."""
    return code == _UNREACHED


def _machines(account: Account, name: str, tag: str, value: str) -> list[dict[str, Any]]:
    wanted = [{"Name": f"tag:{ENGINE_TAG}", "Values": [name]}, {"Name": f"tag:{tag}", "Values": [value]}]
    groups = account.pages("ec2", "describe_instances", "Reservations", Filters=wanted)
    found = [one for group in groups for one in group["Instances"]]
    return [one for one in found if one["State"]["Name"] != "terminated"]


def _lets_ssh_in(rule: dict[str, Any]) -> bool:
    if rule["IpProtocol"] == "-1":
        return True
    first, last = rule.get("FromPort", -1), rule.get("ToPort", -1)
    return bool(rule["IpProtocol"] == "tcp" and first <= _PORT <= last)
