"""What is saved to S3 before a cluster is deleted: by its head node, which sees the shared disks."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence

from kitae.cluster.aws import Account, error_code, plainly
from kitae.cluster.engine_calls import Clusters
from kitae.cluster.leftovers import Leftover
from kitae.cluster.schema import ClusterFile, SaveConfig
from kitae.errors import ClusterError

PAUSE_S = 5.0
LONGEST_S = 6 * 3600
_KEEP_DATA = ("file system", "instance")
_UNDECIDED = ("Pending", "InProgress", "Delayed")
_OTHERWISE = "nothing is deleted; mend that, or give --without-saving"


def save_first(
    account: Account,
    clusters: Clusters,
    file: ClusterFile,
    left: Sequence[Leftover],
    say: Callable[[str], None],
) -> None:
    """Save what a file says before its cluster goes. Raises `ClusterError` where that cannot be, or fails."""
    found = clusters.find(file.name)
    head = None if found is None else found.head_instance
    if head is not None:
        save(account, head, file.save, say)
    elif any(one.kind.name in _KEEP_DATA for one in left):
        folders = ", ".join(one.from_folder for one in file.save)
        raise ClusterError(
            f"{folders} of {file.name} cannot be saved: there is no head node that could copy it, and "
            f"storage is there; {_OTHERWISE}"
        )


def save(account: Account, head: str, saves: Sequence[SaveConfig], say: Callable[[str], None]) -> None:
    """Copy each folder and wait. Raises `ClusterError` when one was not saved."""
    for one in saves:
        say(f"saving {one.from_folder} to {one.to}")
        command = f"aws s3 sync --only-show-errors {shlex.quote(one.from_folder)} {shlex.quote(one.to)}"
        status, error = _run(account, head, command)
        if status != "Success":
            raise ClusterError(
                f"{one.from_folder} was not saved to {one.to}: {status}: {error or 'no reason is given'}; "
                f"{_OTHERWISE}"
            )


def _run(account: Account, instance: str, command: str) -> tuple[str, str]:
    """Run a command there by AWS's session manager; how it ended, and what it wrote of errors."""
    from botocore.exceptions import ClientError

    ssm = account.client("ssm")
    with plainly("asking the head node to save"):
        sent = ssm.send_command(
            InstanceIds=[instance],
            DocumentName="AWS-RunShellScript",
            Parameters={"commands": [command], "executionTimeout": [str(LONGEST_S)]},
        )["Command"]["CommandId"]
    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end:
        with plainly("asking the head node how saving goes"):
            try:
                found = ssm.get_command_invocation(CommandId=sent, InstanceId=instance)
            except ClientError as error:
                # It is told of a moment after it was sent.
                if error_code(error) != "InvocationDoesNotExist":
                    raise
                found = {"Status": "Pending"}
        if found["Status"] not in _UNDECIDED:
            return str(found["Status"]), " ".join(found.get("StandardErrorContent", "").split())
        time.sleep(PAUSE_S)
    return "TimedOut", ""
