"""The stages of a recipe as a chain of jobs, each begun when the one before it has worked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kitae.errors import ClusterError
from kitae.launch.slurm.commands import Slurm
from kitae.launch.slurm.record import SUBMITTED, StageJob, read_jobs, write_jobs
from kitae.launch.slurm.script import Task, log_of, nodes_of, script_of
from kitae.recipe.target import seconds_of
from kitae.storage.files import replace_file

if TYPE_CHECKING:
    from kitae.recipe.schema import Recipe
    from kitae.stages.job import Job

Report = Callable[[str], None]

_STAGE, _BATCH = "kitae.launch.slurm.stage", "kitae.launch.slurm.batch"
CHAIN = (
    (("plan", "prepare"), Task("prepare", _STAGE, ("prepare",))),
    (("import",), Task("import", _STAGE, ("import",))),
    (("precompile",), Task("precompile", _STAGE, ("precompile",), all_nodes=True)),
    (("train",), Task("train", _BATCH, trains=True)),
    (("export", "prove"), Task("prove", _STAGE, ("prove",))),
)
"""Stages of the pipeline, in order, and the job that does them."""
COMPILES = "xla"
"""The backend whose graphs are compiled by a job of their own, on as many nodes as train."""


@dataclass(frozen=True)
class Submission:
    """A recipe on its way to the cluster."""

    recipe: Recipe
    """With absolute paths, and nothing resolved: what is automatic depends on the nodes."""
    run: Path
    cache: Path
    report: Report
    slurm: Slurm
    compiling: tuple[str, ...] = ()
    """Further words for the job that compiles."""

    @classmethod
    def of(
        cls,
        path: Path,
        overrides: Sequence[str],
        report: Report,
        slurm: Slurm | None = None,
        compiling: Sequence[str] = (),
    ) -> Submission:
        """That of a recipe's file, or of a run that was submitted before. Raises `RecipeError`."""
        from kitae.recipe.load import load_recipe
        from kitae.recipe.paths import with_absolute_paths
        from kitae.storage.cache import cache_folder
        from kitae.train.tracking.table import check_trackers

        loaded = load_recipe(recipe_file(path), overrides)
        check_trackers(loaded.recipe.tracking.trackers)
        recipe = with_absolute_paths(loaded.recipe, loaded.base)
        runs = path.absolute().parent if path.is_dir() else Path(recipe.runs).absolute()
        recipe = recipe.model_copy(update={"runs": str(runs)})
        run = path.absolute() if path.is_dir() else runs / recipe.name
        return cls(recipe, run, cache_folder(), report, slurm or Slurm(), tuple(compiling))

    def tasks(self, last: str) -> list[Task]:
        """Jobs that are needed for the stages up to `last`: those whose results are not there."""
        wanted, there = self._wanted(last), self._there()
        return [
            self._told(_up_to(task, last))
            for stages, task in CHAIN
            if any(name in wanted and name not in there for name in stages)
        ]

    def _told(self, task: Task) -> Task:
        return replace(task, words=(*task.words, *self.compiling)) if task.all_nodes else task

    def _wanted(self, last: str) -> list[str]:
        """Stages up to `last`. What the nodes compile, only they know: told by the recipe, or asked for."""
        names = [name for names, _ in CHAIN for name in names]
        wanted = names[: names.index(last) + 1]
        compiles = self.recipe.target.backend == COMPILES or last == "precompile"
        return [name for name in wanted if name != "precompile" or compiles]

    def _there(self) -> set[str]:
        """Stages whose results are there, if the run is one of the same recipe."""
        from kitae.recipe.load import load_recipe
        from kitae.stages.job import open_job
        from kitae.stages.pipeline import STAGES, is_done

        before = self.run / SUBMITTED
        if not before.is_file() or not (self.run / "recipe.yaml").is_file():
            return set()
        if _learned(load_recipe(before).recipe) != _learned(self.recipe):
            return set()
        job: Job = open_job(self.run, report=lambda line: None)
        found = {stage.name for stage in STAGES if is_done(job, stage)}
        # Whether all is compiled, only the nodes know; what is trained needs nothing more.
        return found | {"precompile"} if "train" in found else found

    def show(self, last: str) -> None:
        """Print every script, and how it would be submitted; nothing is written."""
        before = None
        for task in self.tasks(last):
            self.report(f"==> {self._path(task)}")
            self.report(script_of(task, self.run, self.recipe.target, self.cache))
            options = " ".join(_options(before and f"<job of {before}>"))
            self.report(f"$ sbatch --parsable {options} '{self._path(task)}'\n".replace("  ", " "))
            before = task.stage

    def submit(self, last: str) -> list[StageJob]:
        """Submit what is needed up to a stage, in the order of the chain."""
        tasks = self.tasks(last)
        if not tasks:
            self.report(f"nothing to submit: the results of all stages are in {self.run}")
            return []
        return self.submit_tasks(tasks)

    def submit_tasks(self, tasks: Sequence[Task]) -> list[StageJob]:
        """Submit jobs; raises `ClusterError` when one is refused: none is left behind then."""
        self.refuse_running()
        self._write(tasks)
        jobs: list[StageJob] = []
        try:
            for task in tasks:
                before = str(jobs[-1].number) if jobs else None
                jobs.append(StageJob(task.stage, self.slurm.submit(self._path(task), _options(before))))
        except ClusterError:
            if jobs:
                self.slurm.cancel([job.number for job in jobs])
            raise
        write_jobs(self.run, jobs)
        self._tell(jobs)
        if any(task.trains for task in tasks):
            attend(self.run)
        return jobs

    def refuse_running(self) -> None:
        """Raise `ClusterError` while jobs of this run are in the queue."""
        jobs = read_jobs(self.run)
        found = self.slurm.jobs([job.number for job in jobs])
        there = [
            f"{job.stage} {job.number} {found[job.number].state.lower()}"
            for job in jobs
            if job.number in found and not found[job.number].ended
        ]
        if there:
            raise ClusterError(
                f"{self.run} is in the queue already ({', '.join(there)}); wait for it, or cancel it"
            )

    def _write(self, tasks: Sequence[Task]) -> None:
        replace_file(self.run / SUBMITTED, given(self.recipe).encode())
        for task in tasks:
            text = script_of(task, self.run, self.recipe.target, self.cache)
            replace_file(self._path(task), text.encode())
            log_of(self.run, task.stage).parent.mkdir(exist_ok=True)

    def _path(self, task: Task) -> Path:
        return self.run / "slurm" / f"{task.stage}.sh"

    def _tell(self, jobs: Sequence[StageJob]) -> None:
        target = self.recipe.target
        named = ", then ".join(f"{job.stage} (job {job.number})" for job in jobs)
        self.report(f"submitted: {named}; the training on {nodes_of(target)} nodes")
        self.report(f"scripts are in {self.run / 'slurm'}, what the jobs print in {self.run / 'logs'}")
        self.report(most_it_costs(self.recipe))


def given(recipe: Recipe) -> str:
    """YAML of what a recipe says itself: values that it leaves open stay so."""
    import yaml

    from kitae.recipe.yaml_positions import RecipeDumper

    values = recipe.model_dump(mode="json", exclude_unset=True)
    body = yaml.dump(values, Dumper=RecipeDumper, sort_keys=False, allow_unicode=True, width=110)
    return f"# As submitted by kitae: with the flags of the command line, and absolute paths.\n{body}"


def recipe_file(path: Path) -> Path:
    """Where the recipe of a file, or of a run's folder, is: as it was submitted, if it was."""
    if not path.is_dir():
        return path
    return path / SUBMITTED if (path / SUBMITTED).is_file() else path / "recipe.yaml"


def most_it_costs(recipe: Recipe) -> str:
    """What one job of the training costs at most, as far as the recipe says."""
    target = recipe.target
    if target.price_per_node_hour is None:
        return "what it costs is unknown: target.price_per_node_hour is not set"
    hourly = target.most * target.price_per_node_hour
    if target.time_limit is None:
        return f"it costs up to ${hourly:,.2f} an hour ({target.most} nodes), without a limit of time"
    hours = seconds_of(target.time_limit) / 3600
    return f"it costs at most ${hourly * hours:,.2f} each time it runs ({target.most} nodes, {hours:g} hours)"


def _learned(recipe: Recipe) -> Recipe:
    """A recipe without what only says where and how it is computed."""
    plain = type(recipe).model_fields
    names = ("target", "parallel", "checkpoint", "tracking")
    return recipe.model_copy(update={name: plain[name].get_default() for name in names})


def _up_to(task: Task, last: str) -> Task:
    """The job, ending with `last` where that is one of its stages."""
    return (
        replace(task, stage="export", words=("export",))
        if (last, task.stage) == ("export", "prove")
        else task
    )


def _options(before: str | None) -> list[str]:
    """How a job waits for the one before it, and goes when that fails."""
    return ["--kill-on-invalid-dep=yes", f"--dependency=afterok:{before}"] if before else []


def attend(run: Path) -> None:
    """Start what looks after the waiting jobs of a run from here; it goes on when this process has ended."""
    with (run / "logs" / "attend.log").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "kitae.launch.slurm.attend", str(run)],
            cwd=run,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
