"""The stage `train`: the loop, here or in processes of its own, and a sample before and after it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kitae.errors import RecipeError, StorageError
from kitae.recipe.resolve import dump_resolved
from kitae.recipe.schema import Recipe, global_batch_size
from kitae.stages.accuracy import keep_accuracy
from kitae.stages.files import key_of, read_json
from kitae.stages.importing import import_key
from kitae.stages.job import LEARNING, Job, Report, keep_tokenizer, learning
from kitae.stages.report import Log
from kitae.stages.run_folder import RunFolder
from kitae.stages.sampling import sample_once
from kitae.stages.topology import world_size
from kitae.stages.watching import sampler_of, watched
from kitae.storage.files import replace_file

if TYPE_CHECKING:
    import torch

    from kitae.backend.group import Group
    from kitae.checkpoint.resume import Checkpoint
    from kitae.checkpoint.store import CheckpointStore
    from kitae.data.prepare import Prepared
    from kitae.model.architecture import Model
    from kitae.parallel.mesh import Mesh
    from kitae.parallel.region import Region
    from kitae.train.job import Phase, TrainJob


def train_key(job: Job) -> str:
    """Key of the training: the start, the data, what decides what is learned, the rows to judge by."""
    rows = job.recipe.evaluation.max_rows
    parts = {"import": import_key(job), "data": job.data_key, "max_rows": rows}
    if not job.recipe.parallel.keep_global_batch:
        parts["global_batch_size"] = global_batch_size(job.recipe)
    return key_of({**parts, **job.sections(*LEARNING)})


def is_trained(job: Job, key: str) -> bool:
    """Whether the run has results and the checkpoint that they are of, of the right size."""
    steps = read_json(job.run.results).get("steps")
    if steps is None or not job.run.checkpoints.is_dir():
        return False
    from kitae.checkpoint.resume import newest_checkpoint

    newest = newest_checkpoint(job.run.checkpoints, verify=False, report=job.report)
    return newest is not None and newest.step == steps


def train_model(job: Job, key: str) -> dict[str, Any]:
    """Train, or go on; what goes into the run's record. Raises what `kitae.train.loop.train` raises."""
    _describe(job, key)
    keep_tokenizer(job)
    if job.run.metrics.is_file():
        job.report(f"train: going on in {job.run.path}")
    began = time.time()
    try:
        alone = world_size(job.recipe) == 1 and job.machines is None
        with watched(job):
            return (_train_here if alone else _train_in_ranks)(job, key)
    except StorageError as error:
        raise StorageError(
            f"{error}; checkpoints saved before are kept: make room and run the same command again"
        ) from error
    finally:
        keep_accuracy(job, began)


def _train_here(job: Job, key: str) -> dict[str, Any]:
    """Train in this process."""
    from kitae.backend.table import select_aside
    from kitae.launch.environment import surrounded
    from kitae.parallel.mesh import Mesh
    from kitae.train.loop import train

    aside = select_aside(job.backend)
    with surrounded(job.backend, job.recipe.training.precision):
        training = train_job(job, key, Mesh(), job.report)
        elsewhere = training.backend.device != aside.device

        def beginning() -> Model:
            return load_checkpoint(open_start(job), aside.device) if elsewhere else training.model

        sample_once(job, beginning, "before", key)
        result = train(training)

    def trained() -> Model:
        there = elsewhere or result.already_complete
        return load_checkpoint(newest(job), aside.device) if there else training.model

    sample_once(job, trained, "after", key)
    return {"checkpoint": str(result.checkpoint), "steps": result.steps}


def _train_in_ranks(job: Job, key: str) -> dict[str, Any]:
    """Train in processes of their own, one a device, which this one starts and watches."""
    from kitae.backend.table import select_aside
    from kitae.launch.local import launch_ranks
    from kitae.launch.nodes import launch_nodes
    from kitae.launch.order import Launch
    from kitae.stages.node_check import check_nodes

    backend, parallel = select_aside(job.backend), job.recipe.parallel
    sample_once(job, lambda: load_checkpoint(open_start(job), backend.device), "before", key)
    backend.release_memory()
    launch = Launch(
        world_size=world_size(job.recipe),
        tp_size=parallel.tensor_parallel_size,
        backend=job.backend,
        timeout_s=parallel.timeout_s,
        logs=job.run.log.parent,
        title=f"attempt {job.run.attempts}",
        precision=job.recipe.training.precision,
        **_machines(job),
    )
    where = "" if job.machines is None else f" on {', '.join(launch.names)}"
    job.report(
        f"train: {launch.world_size} processes{where} (data parallel {parallel.data_parallel_size} x tensor "
        f"parallel {launch.tp_size}); what all but the first print is in {launch.logs}"
    )
    entry, arguments = f"{__name__}:{train_rank.__name__}", {"run_folder": str(job.run.path), "key": key}
    if job.machines is None:
        launch_ranks(entry, arguments, launch)
    else:
        check_nodes(job, launch, job.machines.starter)
        launch_nodes(entry, arguments, launch, job.machines.starter)
    trained = newest(job)
    sample_once(job, lambda: load_checkpoint(trained, backend.device), "after", key)
    return {"checkpoint": str(trained.path), "steps": trained.step}


def _machines(job: Job) -> dict[str, Any]:
    """What a launch has to know of the machines of a batch job."""
    if job.machines is None:
        return {}
    machines, attempt = job.machines, job.run.path / "attempts" / f"{job.run.attempts:04d}"
    names = {"names": machines.names, "addresses": machines.addresses}
    return {"attempt": attempt, "job": machines.job, "helper": sampler_of(job), **names}


def train_rank(run_folder: str, key: str, mesh: Mesh) -> None:
    """What each process of `kitae.launch` does: the training of a run, as its folder describes it.

    `key` is that of the training. The process that started this one holds the run's lock.
    """
    from kitae.stages.job import open_job
    from kitae.train.loop import train

    # Where the model and the text are, the starting process has said.
    job = open_job(Path(run_folder), report=lambda line: None)
    log = Log()
    if mesh.leads:
        log.attach(job.run.log)
    mesh.meter.observer.touch("loading weights and data")
    train(train_job(job, key, mesh, log))


def store_of(job: Job, control: Group | None = None) -> CheckpointStore:
    """The run's checkpoints; those of several ranks, which save together, with their group."""
    from kitae.backend.group import ALONE
    from kitae.stages.timed_store import TimedStore

    config = job.recipe.checkpoint
    return TimedStore(
        job.run.checkpoints,
        keep=config.keep,
        keep_best=config.keep_best,
        report=job.report,
        control=control or ALONE,
    )


def newest(job: Job) -> Checkpoint:
    """The run's newest checkpoint. Raises `RecipeError` when there is none yet."""
    checkpoint = store_of(job).latest() if job.run.checkpoints.is_dir() else None
    if checkpoint is None:
        raise RecipeError(f"{job.run.path} holds no checkpoint yet; train it first: kitae train RECIPE")
    return checkpoint


def load_checkpoint(
    checkpoint: Checkpoint,
    device: torch.device,
    region: Region | None = None,
    config: Mapping[str, Any] | None = None,
) -> Model:
    """The model of a checkpoint, in fp32; of a tensor-parallel rank, which has a region, its part.

    `config` is the checkpoint's own, with changes that leave the tensors as they are.
    """
    import torch

    from kitae.checkpoint.model_folder import model_of
    from kitae.parallel.region import UNCUT

    source = checkpoint.source("weights")
    return model_of(config or checkpoint.config, source, torch.float32, device, region or UNCUT)


def prepared(job: Job, recipe: Recipe | None = None) -> Prepared:
    """The rows of a phase (default the last), which the stage before has made."""
    from kitae.data.prepare import prepare

    recipe = recipe or job.phases[-1][1]
    return prepare(
        recipe.data,
        base=job.base,
        tokenizer_folder=job.tokenizer_folder,
        embedding_rows=_embedding_rows(job),
        cache=job.cache,
        seed=recipe.seed,
        objective=recipe.objective,
        report=lambda line: job.report(f"prepare: {line}"),
    )


def _embedding_rows(job: Job) -> int:
    from kitae.stages.importing import find_start

    return int(find_start(job).config["vocab_size"])


def open_start(job: Job) -> Checkpoint:
    """The imported weights."""
    from kitae.checkpoint.resume import open_checkpoint

    return open_checkpoint(job.imported(import_key(job)) / "step-00000000")


def _start_with_optimizer(job: Job) -> Checkpoint | None:
    """The checkpoint of which the optimizer's state goes on, too."""
    from kitae.checkpoint.resume import open_checkpoint

    return open_checkpoint(job.start_checkpoint) if job.recipe.model.with_optimizer else None


def train_job(job: Job, key: str, mesh: Mesh, report: Report) -> TrainJob:
    """What the loop trains. `report` is told of the training, the job's own of what comes before it."""
    from kitae.backend.table import select
    from kitae.parallel.region import region_of
    from kitae.train.job import TrainJob

    backend = select(job.backend)
    start = open_start(job)
    region = region_of(mesh.tensor, job.recipe.parallel.sequence_parallel)
    config = with_dropout(start.config, job.recipe.training.dropout)
    model = load_checkpoint(start, backend.side_device(), region, config).to(backend.device)
    return TrainJob(
        model=model,
        start=_start_with_optimizer(job),
        phases=tuple(_phase(job, name, recipe) for name, recipe in job.phases),
        recipe_hash=key,
        store=store_of(replace(job, report=report), mesh.control),
        folder=job.run.path,
        backend=backend,
        model_config=config,
        report=report,
        mesh=mesh,
    )


def with_dropout(config: Mapping[str, Any], dropout: float | Literal["auto"]) -> Mapping[str, Any]:
    """A model's config.json with the recipe's dropout, which the export then names, too."""
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
    return config if dropout == "auto" else {**config, **dict.fromkeys(names, dropout)}


def _phase(job: Job, name: str | None, recipe: Recipe) -> Phase:
    from kitae.train.job import Phase

    data = prepared(job, recipe)
    return Phase(recipe, data.train, data.heldout, data.key, name)


def _describe(job: Job, key: str) -> None:
    """Write the recipe as resolved into the run, and what a later recipe is compared with."""
    text = dump_resolved(job.recipe, header="As resolved by kitae: every value, and absolute paths.")
    replace_file(job.run.recipe, text.encode())
    job.run.state.update(train_key=key, settings=_settings(job))
    job.run.write()


def refuse_other_training(job: Job) -> None:
    """Raise `RecipeError` when the run holds a training that this recipe does not describe."""
    before = job.run.state.get("train_key")
    if before is None or not any(job.run.checkpoints.glob("step-*")) or before == train_key(job):
        return
    changes = differences(learning(job.run.state.get("settings", {})), _settings(job))
    what = "; ".join(changes) or "the text or the model's files changed, or an older kitae began it"
    raise RecipeError(
        f"{job.run.path} holds a training with other settings ({what}); give this one another name "
        "(--set name=...), put the settings back, or set the old run aside with --start-over"
    )


def _settings(job: Job) -> dict[str, Any]:
    """What a person may have changed since the run began."""
    return {
        **job.sections("model", "data", *LEARNING),
        "evaluation": {"max_rows": job.recipe.evaluation.max_rows},
    }


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """What changed from one nested value to another, as `a.b: 1 is now 2`."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = [*old, *(name for name in new if name not in old)]
        inside = (differences(old.get(name), new.get(name), f"{path}.{name}".lstrip(".")) for name in names)
        return [line for lines in inside for line in lines]
    return [] if old == new else [f"{path}: {old} is now {new}"]


def set_aside(run: RunFolder) -> Path | None:
    """Rename a run's folder so that a new one can take its name; where it is now. Not while it is held."""
    path = run.path
    if not path.exists():
        return None
    with run.held():
        number = next(n for n in range(1, 10_000) if not path.with_name(f"{path.name}.old-{n}").exists())
        return path.rename(path.with_name(f"{path.name}.old-{number}"))
