"""A trial run: a real training of few updates through every graph of the whole one, in a folder of its own.

Two full updates and one with as many rows as the real training's last, for each phase; evaluation before and
after, a save between, and once more from there. Only how much is done differs from the real training, never
a shape: the recipe's batches, lengths, precision and topology stay. Its results mean nothing.

`python -m kitae.stages.trial FOLDER` is what a compiler's tool runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from kitae.errors import KitaeError, StoppedError
from kitae.precompile.graphs import FILE as GRAPHS
from kitae.recipe.base import Duration
from kitae.recipe.phases import PhaseConfig
from kitae.recipe.resolve import dump_resolved
from kitae.recipe.schema import Recipe
from kitae.recipe.tracking import TrackingConfig
from kitae.stages.files import read_json
from kitae.stages.job import Job, Machines, open_job
from kitae.stages.run_folder import RunFolder
from kitae.storage.files import replace_file
from kitae.storage.folders import remove_folder

FOLDER = "precompile"
"""In a run's folder: all of its precompilation."""
UPDATES = 3
"""Of each phase: the first, one as all others are, and the last."""
_SAVED_AFTER = 2
_EVALUATED_BATCHES = 2
_AGAIN = "again"
_FIRST_GRAPHS = "graphs-first.json"
MACHINES = "machines.json"
"""In the trial's folder, where several machines take part."""


def trial_folder(job: Job) -> Path:
    """Where the trial run of a run lies."""
    return job.run.path / FOLDER / "trial"


def write_trial(job: Job) -> Path:
    """Make the trial's folder anew, with its recipe; where it is. The text must be prepared.

    Raises `KitaeError` when an earlier trial still works there.
    """
    folder = trial_folder(job)
    if folder.exists():  # graphs of an earlier trial are not those of this one
        with RunFolder(folder).held():
            pass  # none has outlived the process that started it
        remove_folder(folder)
    replace_file(folder / "recipe.yaml", dump_resolved(trial_recipe(job)).encode())
    return folder


def trial_recipe(job: Job) -> Recipe:
    """The job's recipe, cut down in what is done, not in what is computed at a time."""
    recipe = job.recipe
    rows = [_rows(job, one) for _, one in job.phases]
    changes = {
        "name": "trial",
        "runs": str(trial_folder(job).parent),
        "sample": None,
        "target": recipe.target.model_copy(update={"node_check": False}),
        "tracking": TrackingConfig(),
        "checkpoint": recipe.checkpoint.model_copy(
            update={"every": Duration(_SAVED_AFTER, "steps"), "keep": 2}
        ),
    }
    short = {**changes, **_shortened(recipe, recipe, rows[0])}
    phases = [
        phase.model_copy(update=_shortened(phase, whole, count))
        for phase, (_, whole), count in zip(recipe.phases, job.phases, rows, strict=False)
    ]
    return recipe.model_copy(update={**short, "phases": phases})


def _rows(job: Job, recipe: Recipe) -> int:
    """Rows that the trial trains on in a phase: full updates, and one like the real training's last."""
    from kitae.stages.training import prepared
    from kitae.train.lengths import count_out

    train = prepared(job, recipe).train
    lengths = count_out(recipe, samples=len(train), sequence_length=train.sequence_length)
    if lengths.steps <= UPDATES:
        return lengths.rows
    return (UPDATES - 1) * lengths.global_batch_size + lengths.rows_of(lengths.steps - 1)


def _shortened(where: Recipe | PhaseConfig, whole: Recipe, rows: int) -> dict[str, object]:
    """Sections of a recipe, or of a phase of it, with so many rows to train on, and few to evaluate on."""
    size, copies = whole.evaluation.micro_batch_size, whole.parallel.data_parallel_size
    assert size != "auto", "the recipe is resolved"
    assert copies != "auto", "the recipe is resolved"
    few = _EVALUATED_BATCHES * size * copies + 1  # one more: the last batch is not full
    changes: dict[str, dict[str, object]] = {
        "training": {"duration": Duration(rows * whole.data.sequence_length, "tokens")},
        "schedule": {"warmup": Duration(0, "steps")},
        "evaluation": {"max_rows": min(few, whole.evaluation.max_rows or few), "every": "never"},
    }
    return {name: getattr(where, name).model_copy(update=change) for name, change in changes.items()}


def graph_files(folder: Path) -> list[Path]:
    """Where the graphs of both attempts of a trial are recorded."""
    return [file for file in (folder / _FIRST_GRAPHS, folder / GRAPHS) if file.is_file()]


def _set_back(run: RunFolder) -> bool:
    """Take the last save away, and the results; whether there is one before it to go on from."""
    saved = sorted(run.checkpoints.glob("step-*"))
    if len(saved) < 2:
        return False
    remove_folder(saved[-1])
    run.results.unlink(missing_ok=True)
    if (run.path / GRAPHS).is_file():
        (run.path / GRAPHS).replace(run.path / _FIRST_GRAPHS)
    return True


def _machines(folder: Path) -> Machines | None:
    """The machines that take part, and how something is started on them; None for this one alone."""
    values = read_json(folder / MACHINES)
    names = ("names", "addresses", "starter")
    return Machines(**{**values, **{name: tuple(values[name]) for name in names}}) if values else None


def _train(folder: Path) -> int:
    """Train to the end, or go on; the exit code of the command line."""
    from kitae.stages.pipeline import run_stages

    try:
        job = open_job(folder, report=lambda line: print(line, flush=True))
        run_stages(replace(job, machines=_machines(folder)), "train")
    except KitaeError as error:
        print(error if isinstance(error, StoppedError) else f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


def main() -> int:
    """Run the trial of a folder, and a second time from its save: in a process of its own, as a resume is."""
    folder, again = Path(sys.argv[1]), sys.argv[2:] == [_AGAIN]
    # How fast it was is nothing to learn from for plans.
    os.environ["KITAE_STATE"] = str(folder / "state")
    code = _train(folder)
    if code or again or not _set_back(RunFolder(folder)):
        return code
    print("trial: once more from the save", flush=True)
    return subprocess.run([sys.executable, "-m", __spec__.name, str(folder), _AGAIN], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
