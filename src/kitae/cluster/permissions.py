"""What an account's login may do, found out by dry runs, which make nothing."""

from __future__ import annotations

from collections.abc import Iterator

from kitae.catalog.aws import parallelcluster_version
from kitae.cluster.aws import Account, error_code
from kitae.cluster.policy import Scope, statements
from kitae.cluster.resolved import image_of, makes_network
from kitae.cluster.said import Answer
from kitae.cluster.schema import ClusterFile
from kitae.errors import ClusterError

_ALLOWED = "DryRunOperation"
_REFUSED = ("UnauthorizedOperation", "AccessDenied")
_IMAGES = {"ubuntu2204": "ubuntu-2204-lts-hvm", "ubuntu2404": "ubuntu-2404-lts-hvm"}
_SIMULATED = 25
"""Actions that are asked about at a time."""


def permissions(account: Account, file: ClusterFile) -> Iterator[Answer]:
    """Whether machines and network may be made, and every other action of the policy is allowed."""
    image = official_image(account, file)
    if image is None:
        yield Answer(
            "unknown",
            f"ParallelCluster {parallelcluster_version()} has no {image_of(file)} in {account.region}",
        )
    else:
        for kind in dict.fromkeys([file.head.instance, *(queue.instance for queue in file.queues)]):
            wanted = {"ImageId": image, "InstanceType": kind, "MinCount": 1, "MaxCount": 1}
            yield _dry_run(account, "run_instances", f"starting {kind}", **wanted)
    if makes_network(file):
        yield _dry_run(account, "create_vpc", "making a network", CidrBlock=file.network.cidr)
        yield _dry_run(account, "allocate_address", "taking a public address", Domain="vpc")
    yield from _others(account, file)


def official_image(account: Account, file: ClusterFile) -> str | None:
    """The newest official image of the pinned release; an own one where the file names it."""
    if file.image.ami is not None:
        return file.image.ami
    pattern = f"aws-parallelcluster-{parallelcluster_version()}-{_IMAGES[image_of(file)]}-x86_64*"
    found = account.pages("ec2", "describe_images", "Images", Filters=[{"Name": "name", "Values": [pattern]}])
    newest = max(found, key=lambda one: one["CreationDate"], default=None)
    return None if newest is None else str(newest["ImageId"])


def _dry_run(account: Account, operation: str, doing: str, **wanted: object) -> Answer:
    from botocore.exceptions import ClientError

    try:
        getattr(account.client("ec2"), operation)(DryRun=True, **wanted)
    except ClientError as error:
        code = error_code(error)
        if code == _ALLOWED:
            return Answer("ok", f"{doing} is allowed")
        if code in _REFUSED:
            return Answer("wrong", f"{doing} is not allowed; kitae cluster policy prints what is needed")
        return Answer("unknown", f"{doing}: {code}: {error.response['Error'].get('Message', '')}")
    return Answer("unknown", f"{doing}: the dry run was answered as if it were none")


def _others(account: Account, file: ClusterFile) -> Iterator[Answer]:
    """Actions without a dry run, by IAM's simulation."""
    scope = Scope.of(file, account.number)
    actions = sorted({action for one in statements(scope) for action in one["Action"] if "*" not in action})
    try:
        denied = [
            one
            for start in range(0, len(actions), _SIMULATED)
            for one in _denied(account, actions[start:][:_SIMULATED])
        ]
    except ClusterError as error:
        yield Answer("unknown", f"other actions cannot be simulated: {error}")
        return
    if denied:
        more = f" and {len(denied) - 5} more" if len(denied) > 5 else ""
        yield Answer(
            "wrong", f"not allowed: {', '.join(denied[:5])}{more}; kitae cluster policy prints what is needed"
        )
    else:
        yield Answer("ok", f"all {len(actions)} actions of the policy are allowed")


def _denied(account: Account, actions: list[str]) -> list[str]:
    found = account.pages(
        "iam",
        "simulate_principal_policy",
        "EvaluationResults",
        PolicySourceArn=source_arn(account.identity["Arn"]),
        ActionNames=actions,
    )
    # Held to resources and conditions that are not given here, an action may be denied only by those.
    return [one["EvalActionName"] for one in found if one["EvalDecision"] == "explicitDeny"]


def source_arn(arn: str) -> str:
    """The role or user that a login is of: a session of a role is simulated as the role."""
    head, slash, rest = arn.partition(":assumed-role/")
    if not slash:
        return arn
    return f"{head.replace(':sts:', ':iam:')}:role/{rest.partition('/')[0]}"
