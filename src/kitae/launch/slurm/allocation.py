"""The nodes that a batch job has, as its environment and Slurm tell."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kitae.errors import ClusterError
from kitae.launch.slurm.commands import Slurm

if TYPE_CHECKING:
    from kitae.stages.job import Machines

_WAIT_S = 45
"""How long srun waits for the other nodes once the first has ended."""


@dataclass(frozen=True)
class Allocation:
    """What this job has."""

    job: int
    restart: int
    """How often it was queued again."""
    names: tuple[str, ...]
    """Of its nodes, the one of the batch script first."""

    @classmethod
    def here(cls, slurm: Slurm, environment: Mapping[str, str] = os.environ) -> Allocation:
        """That of this process. Raises `ClusterError` outside of a job."""
        if "SLURM_JOB_ID" not in environment or "SLURM_JOB_NODELIST" not in environment:
            raise ClusterError("this is no job of Slurm (SLURM_JOB_ID is not set); submit it with kitae run")
        return cls(
            job=int(environment["SLURM_JOB_ID"]),
            restart=int(environment.get("SLURM_RESTART_COUNT", 0)),
            names=tuple(slurm.host_names(environment["SLURM_JOB_NODELIST"])),
        )

    def machines(self, slurm: Slurm, names: Sequence[str]) -> Machines:
        """Some of them, as those that ranks are started on."""
        from kitae.launch.meeting import address_of
        from kitae.stages.job import Machines

        addresses = slurm.addresses(names)
        return Machines(
            names=tuple(names),
            addresses=tuple(address_of(addresses.get(name, name)) for name in names),
            job=self.job,
            starter=starter(names),
        )


def starter(names: Sequence[str]) -> tuple[str, ...]:
    """The srun command that starts one task on each of the nodes, with all that the job has of it."""
    return (
        "srun",
        f"--nodes={len(names)}",
        f"--ntasks={len(names)}",
        "--ntasks-per-node=1",
        f"--nodelist={','.join(names)}",
        # The nodes tell each other and end by themselves; srun would kill them before they have saved.
        "--kill-on-bad-exit=0",
        f"--wait={_WAIT_S}",
        # Ranks share out the cores themselves, which a task of one core would not have.
        "--cpu-bind=none",
        "--mpi=none",
        "--overlap",
        "--export=ALL",
    )
