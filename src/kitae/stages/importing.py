"""The stage `import`: the weights to start from, in kitae's own format, proven against transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kitae.catalog import named_model
from kitae.errors import RecipeError
from kitae.recipe.model_shape import hf_config_of
from kitae.stages.files import key_of, read_json
from kitae.stages.heads import proof_prompts, target_identity, target_of, words_of
from kitae.stages.job import Job, hash_files
from kitae.stages.summary import proof_text
from kitae.storage.disk import storage_errors
from kitae.storage.lock import exclusive

if TYPE_CHECKING:
    from kitae.checkpoint.model_folder import ModelFolder
    from kitae.checkpoint.pipe import TensorSource

FORMAT = 1
"""Raised when the same source would be imported differently."""


@dataclass(frozen=True)
class Start:
    """Weights to start from, wherever they come from."""

    config: Mapping[str, Any]
    """Hugging Face config.json of the model."""
    tied: bool
    """Whether the head is the embedding."""
    dtype: str
    open: Callable[[], TensorSource]
    """Opens (or draws) the weights."""
    generation_config: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()


def import_key(job: Job) -> str:
    """Key of the imported weights: the content of their source, or all that random weights follow from."""
    return key_of({"format": FORMAT, **_identity(job)})


def _identity(job: Job) -> dict[str, object]:
    return {**_origin_identity(job), **target_identity(job)}


def _origin_identity(job: Job) -> dict[str, object]:
    model = job.recipe.model
    if model.named is not None:
        return {"named": named_model(model.named).sha256}
    if model.preset is not None:
        return {"config": _preset_config(job), "seed": job.recipe.seed}
    if model.run is not None:
        more = {"with_optimizer": True} if model.with_optimizer else {}
        return {"run": job.hashes.sha256(job.start_checkpoint / "manifest.json"), **more}
    assert job.model_folder is not None
    kinds = ("*.json", "*.safetensors", "*.bin")
    return {"folder": hash_files(job, [file for kind in kinds for file in job.model_folder.glob(kind)])}


def _preset_config(job: Job) -> dict[str, Any]:
    if job.recipe.objective == "causal-lm":
        tokenizer = job.tokenizer
        ids = {"bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id}
        return hf_config_of(job.recipe.model, tokenizer.vocab_size, **ids)
    words = words_of(job)
    return hf_config_of(job.recipe.model, words.vocab_size, pad_token_id=words.special.pad)


def is_imported(job: Job, key: str) -> bool:
    """Whether the weights with this key are there."""
    return (job.imported(key) / "step-00000000" / "manifest.json").is_file()


def import_weights(job: Job, key: str) -> dict[str, Any]:
    """Bring the weights in, unless they are there; what goes into the run's record."""
    folder = job.imported(key)
    lock = folder.with_name(f".{key}.lock")
    with storage_errors(folder), exclusive(lock, waiting=lambda: job.report(f"import: waiting for {folder}")):
        # Another process may have made it meanwhile, and others may be reading it: never made twice.
        record = {"reused": True} if is_imported(job, key) else _import(job, key, folder)
    return {"folder": str(folder), **record, **_origin(folder)}


def _import(job: Job, key: str, folder: Path) -> dict[str, Any]:
    from kitae.checkpoint.store import CheckpointStore

    start = find_start(job)
    for note in start.notes:
        job.report(f"import: {note}")
    proof = _prove(job)
    CheckpointStore(folder, keep=1, report=job.report).save(
        0,
        {"weights": start.open()},
        state={"dtype": start.dtype, "generation_config": start.generation_config},
        config=start.config,
        recipe_hash=key,
    )
    return {"reused": False, "proof": proof}


def _origin(folder: Path) -> dict[str, Any]:
    """What an export needs to know of the model's origin, also when the cache is gone by then."""
    state: dict[str, Any] = read_json(folder / "step-00000000" / "manifest.json").get("state", {})
    return {name: state.get(name) for name in ("dtype", "generation_config")}


def _prove(job: Job) -> dict[str, Any] | None:
    """Logits of the source folder, before a step is trained on weights that were read wrongly."""
    if job.model_folder is None:
        return None
    from kitae.checkpoint.proof import prove_folder

    proof = prove_folder(
        job.model_folder, proof_prompts(job), job.recipe.proof.max_logit_difference
    ).as_dict()
    job.report(f"import: {proof_text(proof)}")
    return proof


def find_start(job: Job) -> Start:
    """What the recipe's model section means, checked as far as headers tell; no weights are read yet."""
    model = job.recipe.model
    if model.preset is not None:
        return _random_start(job)
    if model.run is not None:
        return _run_start(job, job.start_checkpoint)
    assert job.model_folder is not None
    return _folder_start(job, job.model_folder)


def _folder_start(job: Job, folder: Path) -> Start:
    from kitae.checkpoint.hf import HfSource
    from kitae.checkpoint.hf import read_json as read_config
    from kitae.checkpoint.model_folder import open_model
    from kitae.checkpoint.surgery import adapted_model

    if job.recipe.objective == "causal-lm":
        model = open_model(folder)
        target_of(job, model.config)
        return _model_start(model)
    config = read_config(folder / "config.json")
    target = target_of(job, config)
    source = HfSource(folder)
    notes = (*source.notes, *_of_classes(config, target))
    return _model_start(adapted_model(folder, target, source, seed=job.recipe.seed, notes=notes))


def _of_classes(config: Mapping[str, Any], target: Mapping[str, Any]) -> tuple[str, ...]:
    from kitae.model.targets import renamed_classes

    said = renamed_classes(config, target)
    return () if said is None else (said,)


def _model_start(model: ModelFolder) -> Start:
    from kitae.checkpoint.pipe import Selection

    return Start(
        config=model.config,
        tied=model.tied,
        dtype=str(model.dtype).removeprefix("torch."),
        open=lambda: Selection(model.source, model.names),
        generation_config=model.generation_config,
        notes=model.notes,
    )


def _run_start(job: Job, path: Path) -> Start:
    from kitae.checkpoint.hf_sink import HEAD
    from kitae.checkpoint.pipe import Selection
    from kitae.checkpoint.resume import open_checkpoint
    from kitae.checkpoint.surgery import adapted_model

    checkpoint = open_checkpoint(path, verify=False)
    target = target_of(job, checkpoint.config)
    # Hashes are checked when the weights are read: an older checkpoint must not come in under this one's key.
    if job.recipe.objective == "causal-lm":
        tied = HEAD not in checkpoint.source("weights").tensors()
        return Start(target, tied, "float32", lambda: open_checkpoint(path).source("weights"))
    if job.recipe.model.with_optimizer and _heads(target) != _heads(checkpoint.config):
        raise RecipeError(
            f"model.with_optimizer: {path} is of a {_heads(checkpoint.config)}, and a {_heads(target)} is "
            "to be trained, of whose heads its optimizer knows nothing; take with_optimizer out"
        )
    notes = _of_classes(checkpoint.config, target)
    model = adapted_model(path, target, checkpoint.source("weights"), seed=job.recipe.seed, notes=notes)

    def weights() -> TensorSource:
        source = open_checkpoint(path).source("weights")
        return Selection(adapted_model(path, target, source, seed=job.recipe.seed).source, model.names)

    return Start(target, model.tied, "float32", weights, notes=model.notes)


def _heads(config: Mapping[str, Any]) -> str:
    """Class of a model and, of a classifier, its number of classes."""
    classes = f" of {len(config['id2label'])} classes" if config.get("id2label") else ""
    return ", ".join(config.get("architectures") or ["BertModel"]) + classes


def _random_start(job: Job) -> Start:
    from kitae.model.tables import parse_config

    config = target_of(job, _preset_config(job))
    tied = parse_config(config).tie_word_embeddings
    return Start(config, tied, "float32", lambda: _random_weights(config, tied, job.recipe.seed))


def _random_weights(config: Mapping[str, Any], tied: bool, seed: int) -> TensorSource:
    import torch

    from kitae.checkpoint.live import LiveSource
    from kitae.model.architecture import architecture_of, parse_config
    from kitae.model.init import initialise

    parsed = parse_config(config)
    model = architecture_of(parsed).build(parsed, tied=tied, dtype=torch.float32, device="cpu")
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    initialise(parameters, model.layouts, seed=seed, std=parsed.initializer_range)
    return LiveSource(parameters, model.layouts)
