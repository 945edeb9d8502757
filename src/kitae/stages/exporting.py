"""The stages `export` and `prove`: a Hugging Face folder, and that stock transformers gives the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kitae.errors import ProofError, WeightsError
from kitae.stages.files import key_of, read_json, write_json
from kitae.stages.heads import proof_prompts, tokenizer_of
from kitae.stages.job import Job
from kitae.stages.summary import proof_text
from kitae.stages.training import newest, train_key

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def export_key(job: Job) -> str:
    """Key of the export: the training and how it is written."""
    return key_of({"train": train_key(job), "export": job.recipe.export.model_dump()})


def is_exported(job: Job, key: str) -> bool:
    """Whether the folder is there."""
    return (job.run.export / "config.json").is_file()


def export_model(job: Job, key: str) -> dict[str, Any]:
    """Write the trained checkpoint to the run's folder `export`; what goes into the run's record.

    Raises `WeightsError` when it is damaged, so that an older one never passes for it.
    """
    trained, usable = read_json(job.run.results).get("steps"), newest(job).step
    if usable != trained:
        job.run.forget("train")
        raise WeightsError(
            f"the checkpoint of step {trained} in {job.run.checkpoints} is damaged; the newest usable one is "
            f"of step {usable}: run the same command again, and the training goes on from there"
        )
    record = export_to(job, job.run.export)
    return {**record, "weights": {name: job.hashes.sha256(path) for name, path in _weights(job).items()}}


def _weights(job: Job) -> dict[str, Path]:
    """The weights files of the export, by name."""
    return {path.name: path for path in sorted(job.run.export.glob("*.safetensors"))}


def export_to(job: Job, folder: Path) -> dict[str, Any]:
    """Write the newest checkpoint as a Hugging Face folder; step and dtype of it."""
    import torch

    from kitae.checkpoint.export import export

    checkpoint = newest(job)
    origin = job.run.stage("import")
    dtype = DTYPES.get(job.recipe.export.dtype) or origin.get("dtype") or "float32"
    export(
        checkpoint.source("weights"),
        folder,
        config=checkpoint.config,
        dtype=getattr(torch, dtype),
        max_shard_bytes=job.recipe.export.max_shard_bytes,
        tokenizer_folder=job.run.path / "tokenizer",
        generation_config=origin.get("generation_config"),
    )
    job.report(f"export: step {checkpoint.step} in {dtype} to {folder}")
    return {"folder": str(folder), "step": checkpoint.step, "dtype": dtype}


def prove_key(job: Job) -> str:
    """Key of the proof: the export and what it is proven with."""
    return key_of({"export": export_key(job), "proof": job.recipe.proof.model_dump()})


def is_proven(job: Job, key: str) -> bool:
    """Whether the proof was written and the folder has not been touched since."""
    return (job.run.path / "proof.json").is_file() and job.run.stage("prove").get("files") == _stamps(job)


def _stamps(job: Job) -> dict[str, list[int]]:
    """Size and time of change of every file of the export, by name."""
    stats = {path.name: path.stat() for path in sorted(job.run.export.iterdir())}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def _refuse_other_weights(job: Job) -> None:
    """Raise `ProofError` when the weights are not the exported ones: two readers agree on any bytes."""
    exported = job.run.stage("export").get("weights", {})
    found = {name: job.hashes.sha256(path) for name, path in _weights(job).items()}
    changed = sorted(name for name in {*exported, *found} if exported.get(name) != found.get(name))
    if changed:
        raise ProofError(
            f"{job.run.export}: {', '.join(changed)} changed since the export; remove the folder and run the "
            "same command again, which exports it anew"
        )


def prove_export(job: Job, key: str) -> dict[str, Any]:
    """Prove the run's export against stock transformers; what goes into the run's record."""
    from kitae.checkpoint.proof import prove_folder

    _refuse_other_weights(job)
    _prove_tokenizer(job)
    limit = job.recipe.proof.max_logit_difference
    proof = prove_folder(job.run.export, proof_prompts(job), limit).as_dict()
    write_json(job.run.path / "proof.json", proof)
    job.report(f"prove: {proof_text(proof)}")
    return {"max_difference": proof["max_difference"], "limit": proof["limit"], "files": _stamps(job)}


def _prove_tokenizer(job: Job) -> None:
    """Stock transformers has to cut the prompts as the training text was cut. Raises `ProofError`."""
    from transformers import AutoTokenizer

    prompts = job.recipe.proof.prompts
    # First, as it says what a tokenizer lacks on this machine, MeCab for one, and how to get it.
    ours = tokenizer_of(job).encode_batch(prompts)
    theirs = AutoTokenizer.from_pretrained(str(job.run.export), local_files_only=True)
    for text, ids in zip(prompts, ours, strict=True):
        found = theirs(text, add_special_tokens=False)["input_ids"]
        if found != ids.tolist():
            raise ProofError(
                f"{job.run.export}: transformers' tokenizer cuts {text!r} into {found}, kitae into "
                f"{ids.tolist()}; do not use this folder, please report it"
            )
