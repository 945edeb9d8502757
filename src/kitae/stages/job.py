"""A recipe at work: where it reads and writes, and the facts that its stages share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kitae.catalog.hf_files import CHAT_TEMPLATE_FILES, TOKENIZER_FILES
from kitae.data.hashing import HashCache
from kitae.data.prepare import data_key
from kitae.data.tokenizer import TextTokenizer
from kitae.data.word_tokenizer import fingerprint_of, settled_settings
from kitae.errors import RecipeError
from kitae.precompile.drive import PLAIN, Compiling
from kitae.recipe.load import load_recipe
from kitae.recipe.paths import with_absolute_paths
from kitae.recipe.resolve import resolve
from kitae.recipe.schema import Recipe, phase_recipes
from kitae.recipe.sources import ModelConfig, TokenizerConfig
from kitae.stages.files import key_of, read_json, write_json
from kitae.stages.run_folder import RunFolder
from kitae.storage.cache import cache_folder
from kitae.storage.files import replace_file

Report = Callable[[str], None]

COMPUTING = ("micro_batch_size", "recompute", "loss_chunk_tokens")
"""Fields of the section `training` that do not change what is learned, only in which pieces."""

LEARNING = ("seed", "optimizer", "schedule", "training")
"""Sections that decide what is learned from a model and its data; others can change while a run goes on."""

LATER = {"objective": "causal-lm", "phases": []}
"""Decide it too, where they are not as they always were."""

LATER_FIELDS = {"dropout": "auto", "max_trust_ratio": None, "attention": "auto"}
"""The same of fields of `training` and `optimizer`."""


def learning(sections: dict[str, Any]) -> dict[str, Any]:
    """Sections of a recipe without the fields that do not change what is learned."""
    phases = [{**phase, "training": _learned(phase["training"])} for phase in sections.get("phases", [])]
    changed: dict[str, Any] = {
        "training": _learned(sections.get("training", {})),
        "optimizer": _learned(sections.get("optimizer", {})),
        "phases": phases,
    }
    return {**sections, **{name: value for name, value in changed.items() if value}}


def _learned(section: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in section.items()
        if name not in COMPUTING and (name not in LATER_FIELDS or value != LATER_FIELDS[name])
    }


@dataclass(frozen=True)
class Machines:
    """The machines of a batch job, which all see the run's folder."""

    names: tuple[str, ...]
    addresses: tuple[str, ...]
    """Where they reach each other."""
    job: int
    """Number of the batch job."""
    starter: tuple[str, ...]
    """Words of the command that starts what follows them once on each machine: srun with its options."""


@dataclass(frozen=True)
class Job:
    """What every stage gets."""

    recipe: Recipe
    """Resolved: what could be automatic is concrete."""
    base: Path
    """Folder that relative paths of the recipe start from."""
    run: RunFolder
    cache: Path
    backend: str
    report: Report
    warnings: tuple[str, ...] = ()
    machines: Machines | None = None
    """Where the ranks of the training run; None for this machine."""
    compiling: Compiling = PLAIN
    """How graphs are compiled ahead, where they are."""

    @cached_property
    def model_folder(self) -> Path | None:
        """The Hugging Face folder to start from; None for a preset or a run."""
        model = self.recipe.model
        return None if model.preset is not None or model.run is not None else self._fetched(model)

    @cached_property
    def start_checkpoint(self) -> Path:
        """The checkpoint that `model.run` means, found once: the run may go on saving meanwhile."""
        from kitae.checkpoint.resume import find_checkpoint

        assert self.recipe.model.run is not None
        return find_checkpoint(self.base / self.recipe.model.run, verify=False, report=self.report).path

    @cached_property
    def tokenizer_folder(self) -> Path:
        """Folder of the tokenizer that the text is cut by."""
        tokenizer = self.recipe.data.tokenizer
        if tokenizer == "auto":
            return tokenizer_of_run(self.base / (self.recipe.model.run or ""))
        if _same_source(self.recipe.model, tokenizer) and self.model_folder is not None:
            return self.model_folder
        return self._fetched(tokenizer)

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        """The tokenizer."""
        return TextTokenizer.load(self.tokenizer_folder)

    @cached_property
    def phases(self) -> list[tuple[str | None, Recipe]]:
        """The phases of the training as whole recipes, by name; one without a name where there are none."""
        return phase_recipes(self.recipe)

    @cached_property
    def data_keys(self) -> list[str]:
        """Keys of the prepared data, by phase."""
        fingerprint = fingerprint_of(self.tokenizer_folder, self.recipe.data.dictionary)
        return [
            data_key(
                recipe.data,
                base=self.base,
                tokenizer_fingerprint=fingerprint,
                seed=recipe.seed,
                cache=self.cache,
                objective=recipe.objective,
            )
            for _, recipe in self.phases
        ]

    @property
    def data_key(self) -> str:
        """One key of all prepared data."""
        keys = self.data_keys
        return keys[0] if len(keys) == 1 else key_of({"phases": keys})

    @cached_property
    def hashes(self) -> HashCache:
        """Remembered hashes of files."""
        return HashCache(self.cache / "hashes")

    def sections(self, *names: str) -> dict[str, Any]:
        """Sections of the recipe as JSON values, without what only says how it is computed."""
        found = self.recipe.model_dump(mode="json", include={*names, *LATER})
        return learning({name: value for name, value in found.items() if LATER.get(name) != value})

    def imported(self, key: str) -> Path:
        """Folder of the imported weights with this key."""
        return self.cache / "imported" / key

    def prompt_ids(self, text: str) -> list[int]:
        """Ids of a prompt, begun as the training documents are."""
        tokenizer, bos = self.tokenizer, self.recipe.data.bos
        begin = bos == "always" or (bos == "auto" and tokenizer.adds_bos)
        return [
            *([tokenizer.bos_id] if begin and tokenizer.bos_id is not None else []),
            *tokenizer.encode(text),
        ]

    def _fetched(self, source: ModelConfig | TokenizerConfig) -> Path:
        from kitae.checkpoint.fetch import model_folder

        return model_folder(source, base=self.base, cache=self.cache, report=self.report)


def open_job(path: Path, overrides: Sequence[str] = (), *, report: Report = print) -> Job:
    """The job of a recipe file, or of a run folder, whose recipe lies in it. Raises `RecipeError`."""
    from kitae.backend.table import chosen

    file = path / "recipe.yaml" if path.is_dir() else path
    moved = [one for one in overrides if one.partition("=")[0].strip() in ("name", "runs")]
    if path.is_dir() and moved:
        raise RecipeError(
            f"--set {moved[0]}: {path} is a run already; give the recipe's file to start another one"
        )
    if path.is_dir() and not file.is_file():
        raise RecipeError(f"{path} is neither a recipe nor a run of kitae: there is no recipe.yaml in it")
    loaded = load_recipe(file, overrides)
    backend = chosen(asked_backend(loaded.recipe))
    resolved = resolve(loaded.recipe, backend=backend.name, devices=backend.devices())
    recipe = with_absolute_paths(resolved.recipe, loaded.base)
    run = path if path.is_dir() else Path(recipe.runs) / recipe.name
    return Job(
        recipe=recipe,
        base=loaded.base,
        run=RunFolder(run.absolute()),
        cache=cache_folder(),
        backend=backend.name,
        report=report,
        warnings=resolved.warnings,
    )


def asked_backend(recipe: Recipe) -> str:
    """The backend that a recipe names, or `auto`; where its nodes are others, only if this machine has it."""
    from kitae.backend.table import available

    asked = recipe.target.backend
    return asked if recipe.target.kind == "local" or asked in available() else "auto"


def keep_tokenizer(job: Job) -> Path:
    """Copy the tokenizer's files into the run, which then needs nothing else to be exported; their folder.

    What an attempt with another tokenizer left there goes. A config.json keeps the begin and end ids, which
    some folders state nowhere else. The dictionary of a Japanese one is named, whoever named it before.
    """
    home = job.run.path / "tokenizer"
    source = job.tokenizer_folder
    for name in (*TOKENIZER_FILES, *CHAT_TEMPLATE_FILES):
        if (source / name).is_file():
            replace_file(home / name, (source / name).read_bytes())
        else:
            (home / name).unlink(missing_ok=True)
    settings = settled_settings(source, job.recipe.data.dictionary)
    if settings is not None:
        write_json(home / "tokenizer_config.json", settings)
    config = read_json(source / "config.json")
    write_json(home / "config.json", {name: config.get(name) for name in ("bos_token_id", "eos_token_id")})
    return home


def hash_files(job: Job, files: Sequence[Path]) -> str:
    """One hash of the names and contents of files."""
    return key_of({file.name: job.hashes.sha256(file) for file in sorted(files)})


def _same_source(model: ModelConfig, tokenizer: TokenizerConfig) -> bool:
    fields = ("folder", "hub", "revision", "named")
    return all(getattr(model, name) == getattr(tokenizer, name) for name in fields)


def tokenizer_of_run(path: Path) -> Path:
    """The tokenizer that a run, or the run that a checkpoint belongs to, was trained with."""
    for place in (path, path.parent, path.parent.parent):
        if (place / "tokenizer").is_dir():
            return place / "tokenizer"
    raise RecipeError(f"{path}: its run has no folder `tokenizer`; name a tokenizer with data.tokenizer")
