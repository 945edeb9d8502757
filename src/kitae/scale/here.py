"""Measurements on this machine: one training after the other, each in processes of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kitae.errors import KitaeError, StoppedError
from kitae.plan.identity import usable_cores
from kitae.scale.setup import BASE, Order, Setup, note_failure
from kitae.scale.verdict import counted

Report = Callable[[str], None]
ENTRY = "kitae.scale.rank:measure_rank"
_STOPPING = "stopping; what was measured is kept"


def threads_each(widths: int) -> int:
    """Threads of each worker, the same at every width, so that more workers are more of the machine."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) else max(1, usable_cores() // widths)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let processes that are started meanwhile have so many threads."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(count)
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def warnings_here(setup: Setup) -> Iterator[str]:
    """Of widths that this machine has too few cores for."""
    from kitae.backend.table import BACKENDS
    from kitae.stages.job import open_job
    from kitae.stages.topology import check_devices

    widest = max(setup.wanted.widths)
    threads, cores = threads_each(widest), usable_cores()
    job = open_job(setup.folder / BASE, report=lambda line: None)
    if BACKENDS[job.backend].exclusive:
        yield from check_devices(widest, BACKENDS[job.backend])
        return
    yield f"each worker has {threads} thread{'s' * (threads > 1)} of {cores} cores, at every width"
    over = [width for width in sorted(setup.wanted.widths) if width * threads > cores]
    if over:
        yield (
            f"warning: {', '.join(map(str, over))} workers have more threads than the {cores} cores here and "
            "take turns on them: their rows are marked, and say nothing of as many machines"
        )


def prepare_here(setup: Setup, report: Report) -> None:
    """Bring text and weights in, once for all widths; skipped where they are in the cache."""
    from kitae.stages.job import open_job
    from kitae.stages.pipeline import run_stages

    job = open_job(setup.folder / BASE, report=report)
    run_stages(job, "import")


def measure_here(setup: Setup, report: Report, measured: Callable[[Order], None]) -> None:
    """Make all that is missing; a width that failed once is not tried again. Raises `StoppedError`."""
    lost: set[int] = set()
    for order in setup.missing():
        if order.width in lost:
            continue
        folder = setup.lay_out(order)
        why = _measure(folder)
        if why is not None:
            lost.add(order.width)
            note_failure(folder, why)
            report(f"{counted(order.width, setup.wanted.unit)}: failed, and left out: {why}")
        else:
            measured(order)


def _measure(folder: Path) -> str | None:
    """Train in ranks; why that failed."""
    from kitae.launch.failure import RankBugError
    from kitae.launch.local import launch_ranks
    from kitae.launch.order import Launch
    from kitae.stages.job import open_job
    from kitae.stages.topology import world_size

    job = open_job(folder, report=lambda line: None)
    launch = Launch(
        world_size=world_size(job.recipe),
        tp_size=job.recipe.parallel.tensor_parallel_size,
        backend=job.backend,
        timeout_s=job.recipe.parallel.timeout_s,
        logs=job.run.log.parent,
        on_stop=_STOPPING,
        precision=job.recipe.training.precision,
    )
    try:
        launch_ranks(ENTRY, {"folder": str(folder)}, launch)
    except StoppedError:
        raise
    except (KitaeError, RankBugError) as error:
        return f"{error} (see {launch.logs})"
    return None
