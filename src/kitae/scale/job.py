"""The script of a measurement's job: `python -m kitae.scale.job FOLDER`, on the first of its nodes."""

from __future__ import annotations

import sys
from pathlib import Path

from kitae.errors import KitaeError, StoppedError
from kitae.launch.slurm.allocation import Allocation
from kitae.launch.slurm.commands import Slurm
from kitae.scale.here import ENTRY
from kitae.scale.setup import note_failure


def main() -> int:
    """Train on all nodes of the job; its exit code. Why it failed stays in the folder."""
    from kitae.launch.failure import RankBugError

    folder = Path(sys.argv[1])
    try:
        _measure(folder)
    except (KitaeError, RankBugError) as error:
        if not isinstance(error, StoppedError):
            note_failure(folder, f"{error} (see {folder / 'logs'})")
        print(f"error: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 70)
    return 0


def _measure(folder: Path) -> None:
    from kitae.launch.nodes import launch_nodes
    from kitae.launch.order import Launch
    from kitae.stages.job import open_job
    from kitae.stages.topology import world_size

    slurm = Slurm()
    here = Allocation.here(slurm)
    machines = here.machines(slurm, here.names)
    job = open_job(folder, report=lambda line: None)
    launch = Launch(
        world_size=world_size(job.recipe),
        tp_size=job.recipe.parallel.tensor_parallel_size,
        backend=job.backend,
        timeout_s=job.recipe.parallel.timeout_s,
        logs=job.run.log.parent,
        precision=job.recipe.training.precision,
        attempt=folder / "attempts" / str(here.job),
        job=here.job,
        names=machines.names,
        addresses=machines.addresses,
    )
    launch_nodes(ENTRY, {"folder": str(folder)}, launch, machines.starter)


if __name__ == "__main__":
    sys.exit(main())
