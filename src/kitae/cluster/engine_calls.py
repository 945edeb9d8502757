"""What ParallelCluster is asked for, and what its JSON says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kitae.cluster.pcluster import Answer
from kitae.errors import ClusterError

WOULD_SUCCEED = "Request would have succeeded, but DryRun flag is set."
_MISSING = "does not exist"
_GONE = "DELETE_COMPLETE"
_LOOKS = 5


class Runs(Protocol):
    """Runs `pcluster WORDS`."""

    def run(self, words: Sequence[str], environment: Mapping[str, str] | None = None) -> Answer:
        """Its answer."""
        ...


@dataclass(frozen=True)
class Cluster:
    """A cluster as ParallelCluster describes it."""

    name: str
    status: str
    fleet: str
    head_address: str | None
    head_instance: str | None
    failures: tuple[str, ...]
    config_url: str = ""
    """Where its configuration can be read for a while."""

    @property
    def in_progress(self) -> bool:
        """Whether something of it is being changed."""
        return self.status.endswith("_IN_PROGRESS")


@dataclass(frozen=True)
class Trial:
    """What a dry run of a change told."""

    parameters: tuple[str, ...]
    """What would change."""
    refused: Mapping[str, str]
    """What may not, as things are now, and why."""


@dataclass(frozen=True)
class Clusters:
    """Clusters of a region, through ParallelCluster."""

    engine: Runs
    region: str

    def create(self, name: str, config: Path, suppress: Sequence[str] = (), *, dry_run: bool = False) -> None:
        """Begin to make a cluster, or only look whether it could be. Raises `ClusterError`."""
        words = ["create-cluster", *self._of(name), "--cluster-configuration", str(config)]
        if suppress:
            words += ["--suppress-validators", *(f"type:{one}" for one in suppress)]
        answer = self.engine.run([*words, "--dryrun", "true" if dry_run else "false"])
        if dry_run and WOULD_SUCCEED in answer.message:
            return
        if dry_run or answer.code != 0:
            raise ClusterError(f"ParallelCluster refuses {name}: {_refusal(answer)}")

    def try_update(self, name: str, config: Path, suppress: Sequence[str] = ()) -> Trial:
        """Let ParallelCluster look whether a cluster could be changed so. Raises `ClusterError`."""
        answer = self.engine.run([*self._updating(name, config, suppress), "--dryrun", "true"])
        refused = answer.body.get("updateValidationErrors") or []
        if WOULD_SUCCEED not in answer.message and not refused:
            raise ClusterError(f"ParallelCluster refuses the change of {name}: {_refusal(answer)}")
        return Trial(
            tuple(str(one["parameter"]) for one in answer.body.get("changeSet") or []),
            {str(one["parameter"]): " ".join(str(one["message"]).split()) for one in refused},
        )

    def update(self, name: str, config: Path, suppress: Sequence[str] = (), *, force: bool = False) -> None:
        """Begin to change a cluster; `force` against its update policies. Raises `ClusterError`."""
        words = [*self._updating(name, config, suppress), *(["--force-update", "true"] if force else [])]
        answer = self.engine.run(words)
        if answer.code != 0:
            refused = answer.body.get("updateValidationErrors") or []
            why = "; ".join(f"{one['parameter']}: {one['message']}" for one in refused)
            raise ClusterError(f"ParallelCluster refuses the change of {name}: {why or _refusal(answer)}")

    def _updating(self, name: str, config: Path, suppress: Sequence[str]) -> list[str]:
        words = ["update-cluster", *self._of(name), "--cluster-configuration", str(config)]
        return [*words, "--suppress-validators", *(f"type:{one}" for one in suppress)] if suppress else words

    def find(self, name: str) -> Cluster | None:
        """The cluster of that name; None where there is none. Raises `ClusterError`."""
        answer = self.engine.run(["describe-cluster", *self._of(name)])
        if answer.code != 0:
            if _MISSING in answer.message:
                return None
            raise ClusterError(f"ParallelCluster cannot describe {name}: {answer.message}")
        found = _cluster(answer.body)
        return None if found.status == _GONE else found

    def look(self, name: str, pause: Callable[[], None]) -> Cluster | None:
        """As `find`, for whoever waits long: an answer that fails is asked for again some times."""
        for _ in range(_LOOKS - 1):
            try:
                return self.find(name)
            except ClusterError:
                pause()
        return self.find(name)

    def events(self, name: str) -> list[str]:
        """What happened to its stack so far, oldest first: `resource status reason`."""
        answer = self.engine.run(["get-cluster-stack-events", *self._of(name)])
        rows = answer.body.get("events", []) if answer.code == 0 else []
        return [_event(one) for one in reversed(rows)]

    def delete(self, name: str) -> None:
        """Begin to delete it. Raises `ClusterError`."""
        answer = self.engine.run(["delete-cluster", *self._of(name)])
        if answer.code != 0 and _MISSING not in answer.message:
            raise ClusterError(f"ParallelCluster does not delete {name}: {answer.message}")

    def fleet(self, name: str, *, start: bool) -> None:
        """Begin to start or stop its machines, the head node left out. Raises `ClusterError`."""
        status = "START_REQUESTED" if start else "STOP_REQUESTED"
        answer = self.engine.run(["update-compute-fleet", *self._of(name), "--status", status])
        if answer.code != 0:
            raise ClusterError(
                f"the fleet of {name} cannot be {'started' if start else 'stopped'}: {answer.message}"
            )

    def _of(self, name: str) -> list[str]:
        return ["--cluster-name", name, "--region", self.region]


def _cluster(body: Mapping[str, Any]) -> Cluster:
    head = body.get("headNode") or {}
    failures = [
        str(one.get("failureReason") or one.get("failureCode") or one) for one in body.get("failures") or []
    ]
    return Cluster(
        name=str(body.get("clusterName", "")),
        status=str(body.get("clusterStatus", "UNKNOWN")),
        fleet=str(body.get("computeFleetStatus", "UNKNOWN")),
        head_address=head.get("publicIpAddress") or head.get("privateIpAddress"),
        head_instance=head.get("instanceId"),
        failures=tuple(failures),
        config_url=str((body.get("clusterConfiguration") or {}).get("url", "")),
    )


def _event(one: Mapping[str, Any]) -> str:
    reason = one.get("resourceStatusReason") or ""
    words = (one.get("logicalResourceId", "?"), one.get("resourceStatus", "?"), reason)
    return " ".join(str(word) for word in words if word)


def first_failure(events: Sequence[str]) -> str:
    """The first event that is a failure of its own, not of what was cancelled because of another."""
    failed = (one for one in events if "_FAILED" in one and "cancelled" not in one.lower())
    return next(failed, "")


def _refusal(answer: Answer) -> str:
    rows = answer.body.get("configurationValidationErrors") or []
    errors = [f"{row['type']}: {row['message']}" for row in rows if row.get("level") == "ERROR"]
    return "; ".join(errors) or answer.message
