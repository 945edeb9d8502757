"""The entry of a job that does stages: `python -m kitae.launch.slurm.stage RUN STAGE`, the last stage to do.

All but `precompile` have one node; that one has the nodes of a training, since each has a cache of its own,
and may be told further words (`Compiling.words`).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kitae.errors import KitaeError, StoppedError

if TYPE_CHECKING:
    from kitae.stages.job import Job
    from kitae.stages.report import Log


def main() -> int:
    """Do the stages; the exit code of the command line."""
    run, last = Path(sys.argv[1]), sys.argv[2]
    from kitae.launch.slurm.chain import recipe_file
    from kitae.stages.job import open_job
    from kitae.stages.pipeline import run_stages
    from kitae.stages.report import Log
    from kitae.stages.summary import summary
    from kitae.watch.report.failed import report_on_failure

    # A training has written down what it was resolved to, which later stages must not choose anew.
    resolved = run / "recipe.yaml"
    log = Log()
    try:
        file = run if last in ("export", "prove") and resolved.is_file() else recipe_file(run)
        job = _on_all_nodes(file, log) if last == "precompile" else open_job(file, report=log)
        log.attach(job.run.log)
        with report_on_failure(job.run, log):
            run_stages(job, last)
    except KitaeError as error:
        print(error if isinstance(error, StoppedError) else f"error: {error}", file=sys.stderr)
        return error.exit_code
    if last == "prove":
        from kitae.watch.report.write import report_at_end

        for line in summary(job.run):
            log(line)
        report_at_end(job.run.path, log)
    return 0


def _on_all_nodes(file: Path, log: Log) -> Job:
    """The job of a recipe on the nodes of this batch job; of one node alone as anywhere."""
    from kitae.launch.slurm.allocation import Allocation
    from kitae.launch.slurm.commands import Slurm
    from kitae.precompile.drive import Compiling
    from kitae.stages.job import open_job

    slurm = Slurm()
    here = Allocation.here(slurm)
    job = open_job(file, [f"target.nodes={len(here.names)}"], report=log)
    job = replace(job, compiling=Compiling.of_words(sys.argv[3:]))
    return job if len(here.names) == 1 else replace(job, machines=here.machines(slurm, here.names))


if __name__ == "__main__":
    sys.exit(main())
