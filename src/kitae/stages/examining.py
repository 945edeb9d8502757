"""What `kitae doctor` looks at: the tokenizer, text and model behind a recipe, a run or a folder."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kitae.catalog.hf_files import TOKENIZER_FILES
from kitae.catalog.reading import unknown
from kitae.data.documents import Tally
from kitae.data.masked import are_shards
from kitae.data.sources import Sources, open_source
from kitae.doctor.finding import Patient
from kitae.errors import KitaeError, RecipeError
from kitae.recipe.load import load_recipe
from kitae.recipe.schema import Recipe
from kitae.stages.files import read_json
from kitae.stages.job import Job, open_job
from kitae.storage.cache import cache_folder

AUTO = "auto"
PRECISIONS = ("fp32", "bf16", "bf16-sr", "autocast")
_AUTOMATIC = {"cpu": "fp32", "xla-cpu": "fp32"}
"""What `training.precision: auto` means on a stack, where it is not bf16."""
SAMPLE_DOCUMENTS = 1000
SAMPLE_CHARS = 100_000
"""So much of a text tells what it is like."""


def aim(
    target: str,
    precision: str | None = None,
    subject: Path | None = None,
    changes: Sequence[str] = (),
    dictionary: str | None = None,
) -> Patient:
    """As `patient_of`, with the machine type that is meant. Raises `RecipeError` for unknown names.

    The precision is the one given, else that of the recipe, as it would be there. A recipe whose model is out
    of reach here is told to be so; what the machine needs is known all the same.
    """
    from kitae.doctor.target import target_of

    if precision is not None and precision not in PRECISIONS:
        raise RecipeError(unknown("precision", precision, PRECISIONS))
    raw = _as_written(subject, changes)
    found = target_of(target, precision or (AUTO if raw is None else raw.training.precision))
    if found.precision == AUTO:
        found = replace(found, precision=_AUTOMATIC.get(found.stack, "bf16"))
    try:
        patient = patient_of(subject, changes, dictionary)
    except KitaeError as error:
        if raw is None:
            raise
        patient = Patient(cache_folder(), out_of_reach=str(error))
    if raw is not None:
        patient = replace(patient, ranks=_ranks(raw), runs=Path(raw.runs))
    return replace(patient, target=found)


def _as_written(path: Path | None, changes: Sequence[str]) -> Recipe | None:
    """A recipe before anything automatic is settled for this machine; None of folders without one."""
    file = path / "recipe.yaml" if path is not None and path.is_dir() else path
    return load_recipe(file, changes).recipe if file is not None and file.is_file() else None


def _ranks(recipe: Recipe) -> int | None:
    """Processes on each machine, as far as the recipe says; else a machine gets as many as it has cores."""
    parallel, target = recipe.parallel, recipe.target
    if isinstance(target.processes_per_node, int):
        return target.processes_per_node
    copies = parallel.data_parallel_size
    if not isinstance(copies, int) or target.least != target.most:
        return None
    world = copies * parallel.tensor_parallel_size
    return world // target.most if world % target.most == 0 else None


def patient_of(subject: Path | None, changes: Sequence[str] = (), dictionary: str | None = None) -> Patient:
    """What there is behind a path; without one, the machine alone. Raises `RecipeError`."""
    if subject is None:
        return Patient(cache_folder())
    if subject.is_dir() and not (subject / "recipe.yaml").is_file():
        return _folder(subject, dictionary)
    if dictionary is not None:
        raise RecipeError("--dictionary is for a folder; a recipe has data.tokenizer.dictionary (--set)")
    return _recipe(open_job(subject, changes, report=lambda line: None))


def _folder(folder: Path, dictionary: str | None) -> Patient:
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise RecipeError(f"{folder}: neither a run nor the folder of a tokenizer or model")
    return Patient(cache_folder(), folder, dictionary, _rows(folder))


def _recipe(job: Job) -> Patient:
    folder = job.tokenizer_folder
    model = job.model_folder
    return Patient(
        job.cache,
        folder,
        job.recipe.data.dictionary,
        None if model is None else _rows(model),
        lambda: _beginning(job),
    )


def _rows(folder: Path) -> int | None:
    rows = read_json(folder / "config.json").get("vocab_size")
    return rows if isinstance(rows, int) else None


def _beginning(job: Job) -> list[str]:
    """The first documents of the training text, up to a number of characters; none of shards of rows."""
    sources = [open_source(source, job.base) for source in job.recipe.data.train]
    if are_shards(Sources(sources, [])):
        return []
    tally = Tally("skip")
    documents = itertools.chain.from_iterable(source.documents(tally) for source in sources)
    texts: list[str] = []
    room = SAMPLE_CHARS
    for document in itertools.islice(documents, SAMPLE_DOCUMENTS):
        texts.append(document.text[:room])
        room -= len(texts[-1])
        if room <= 0:
            break
    return texts
