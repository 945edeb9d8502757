"""The entry of a job of one node: `python -m kitae.launch.slurm.stage RUN STAGE`, the last stage to do."""

from __future__ import annotations

import sys
from pathlib import Path

from kitae.errors import KitaeError, StoppedError


def main() -> int:
    """Do the stages; the exit code of the command line."""
    run, last = Path(sys.argv[1]), sys.argv[2]
    from kitae.launch.slurm.chain import recipe_file
    from kitae.stages.job import open_job
    from kitae.stages.pipeline import run_stages
    from kitae.stages.report import Log
    from kitae.stages.summary import summary

    # A training has written down what it was resolved to, which later stages must not choose anew.
    resolved = run / "recipe.yaml"
    log = Log()
    try:
        job = open_job(
            run if last in ("export", "prove") and resolved.is_file() else recipe_file(run), report=log
        )
        log.attach(job.run.log)
        run_stages(job, last)
    except KitaeError as error:
        print(error if isinstance(error, StoppedError) else f"error: {error}", file=sys.stderr)
        return error.exit_code
    if last == "prove":
        for line in summary(job.run):
            log(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
