"""The stage `train`: the loop, and a sample before and after it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kitae.errors import RecipeError, StorageError
from kitae.recipe.resolve import dump_resolved
from kitae.stages.files import key_of, read_json, write_json
from kitae.stages.importing import import_key
from kitae.stages.job import LEARNING, Job, keep_tokenizer
from kitae.stages.run_folder import RunFolder
from kitae.storage.files import replace_file

if TYPE_CHECKING:
    import torch

    from kitae.checkpoint.resume import Checkpoint
    from kitae.checkpoint.store import CheckpointStore
    from kitae.data.prepare import Prepared
    from kitae.model.decoder import Decoder
    from kitae.parallel.region import Region
    from kitae.train.job import TrainJob


def train_key(job: Job) -> str:
    """Key of the training: the start, the data, what decides what is learned, the rows to judge by."""
    rows = job.recipe.evaluation.max_rows
    parts = {"import": import_key(job), "data": job.data_key, "max_rows": rows}
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
    from kitae.train.loop import train

    _describe(job, key)
    keep_tokenizer(job)
    training = _train_job(job, key)
    if job.run.metrics.is_file():
        job.report(f"train: going on in {job.run.path}")
    _sample(job, training.decoder, "before", key)
    try:
        result = train(training)
    except StorageError as error:
        raise StorageError(
            f"{error}; checkpoints saved before are kept: make room and run the same command again"
        ) from error
    device = training.backend.device
    trained = load_checkpoint(newest(job), device) if result.already_complete else training.decoder
    _sample(job, trained, "after", key)
    return {"checkpoint": str(result.checkpoint), "steps": result.steps}


def store_of(job: Job) -> CheckpointStore:
    """The run's checkpoints."""
    from kitae.checkpoint.store import CheckpointStore

    config = job.recipe.checkpoint
    return CheckpointStore(
        job.run.checkpoints, keep=config.keep, keep_best=config.keep_best, report=job.report
    )


def newest(job: Job) -> Checkpoint:
    """The run's newest checkpoint. Raises `RecipeError` when there is none yet."""
    checkpoint = store_of(job).latest() if job.run.checkpoints.is_dir() else None
    if checkpoint is None:
        raise RecipeError(f"{job.run.path} holds no checkpoint yet; train it first: kitae train RECIPE")
    return checkpoint


def load_checkpoint(checkpoint: Checkpoint, device: torch.device, region: Region | None = None) -> Decoder:
    """The decoder of a checkpoint, in fp32; of a tensor-parallel rank, which has a region, its part."""
    import torch

    from kitae.checkpoint.hf_sink import HEAD
    from kitae.checkpoint.model_folder import fill_decoder
    from kitae.model.config import DecoderConfig
    from kitae.model.decoder import Decoder
    from kitae.parallel.region import UNCUT

    source = checkpoint.source("weights")
    decoder = Decoder(
        DecoderConfig.from_hf(checkpoint.config),
        tied=HEAD not in source.tensors(),
        dtype=torch.float32,
        device=device,
        region=region or UNCUT,
    )
    fill_decoder(decoder, source)
    return decoder


def prepared(job: Job) -> Prepared:
    """The packed data, which the stage before has made."""
    from kitae.data.prepare import prepare

    return prepare(
        job.recipe.data,
        base=job.base,
        tokenizer_folder=job.tokenizer_folder,
        embedding_rows=_embedding_rows(job),
        cache=job.cache,
        seed=job.recipe.seed,
        report=lambda line: job.report(f"prepare: {line}"),
    )


def _embedding_rows(job: Job) -> int:
    from kitae.stages.importing import find_start

    return int(find_start(job).config["vocab_size"])


def open_start(job: Job) -> Checkpoint:
    """The imported weights."""
    from kitae.checkpoint.resume import open_checkpoint

    return open_checkpoint(job.imported(import_key(job)) / "step-00000000")


def _train_job(job: Job, key: str) -> TrainJob:
    from kitae.backend.table import select
    from kitae.train.job import TrainJob

    backend = select(job.backend)
    start = open_start(job)
    data = prepared(job)
    return TrainJob(
        decoder=load_checkpoint(start, backend.device),
        train=data.train,
        heldout=data.heldout,
        recipe=job.recipe,
        recipe_hash=key,
        store=store_of(job),
        folder=job.run.path,
        backend=backend,
        model_config=start.config,
        data_key=data.key,
        report=job.report,
    )


def _sample(job: Job, decoder: Decoder, when: str, key: str) -> None:
    """Continue the prompt and keep the text, once for this training."""
    sample = job.recipe.sample
    texts = read_json(job.run.samples)
    if texts.get("key") != key or (sample is not None and texts.get("prompt") != sample.prompt):
        texts = {}
    if sample is None or when in texts:
        return
    from kitae.generate import generate

    ids = job.prompt_ids(sample.prompt)
    new = generate(
        decoder,
        ids,
        sample.max_new_tokens,
        eos_ids=decoder.config.eos_token_ids,
        temperature=sample.temperature,
        top_k=sample.top_k,
        seed=job.recipe.seed,
    )
    # The last token may hold only the first bytes of a character.
    text = job.tokenizer.decode([*ids, *new]).rstrip("\N{REPLACEMENT CHARACTER}")
    write_json(job.run.samples, {**texts, "key": key, "prompt": sample.prompt, when: text})


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
    changes = differences(job.run.state.get("settings", {}), _settings(job))
    what = "; ".join(changes) or "the text or the model's files changed"
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
