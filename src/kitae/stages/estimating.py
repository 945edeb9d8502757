"""Plans of a recipe for machines of the catalogue, or for this one: without torch if all it needs is here."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kitae.catalog import Instance, instance
from kitae.catalog.models import preset_of
from kitae.errors import KitaeError, RecipeError
from kitae.model.tables import parse_config
from kitae.plan.estimate import Estimate, estimate
from kitae.plan.local import local_machine
from kitae.plan.machine import Machine, rented
from kitae.plan.money import Rent
from kitae.plan.phases import Stretch
from kitae.plan.work import work_of
from kitae.recipe.base import Duration
from kitae.recipe.load import load_recipe
from kitae.recipe.model_shape import hf_config_of, preset_shape
from kitae.recipe.paths import with_absolute_paths
from kitae.recipe.resolve import resolve
from kitae.recipe.schema import Recipe
from kitae.recipe.sources import ModelConfig, TokenizerConfig
from kitae.stages.files import read_json
from kitae.stages.heads import target_of
from kitae.stages.importing import find_start
from kitae.stages.job import Job, Report
from kitae.stages.run_folder import RunFolder
from kitae.stages.topology import check_cut, world_size
from kitae.storage.cache import cache_folder

HEAD = "lm_head.weight"
_NVIDIA = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class Shape:
    """What is to be known of a model before its weights are read."""

    config: dict[str, Any]
    tied: bool
    note: str | None = None
    """What was taken for want of files."""

    @property
    def notes(self) -> tuple[str, ...]:
        """The note, if there is one."""
        return () if self.note is None else (self.note,)


class PlanJob(Job):
    """A job that looks at what is here before it fetches anything, which needs torch."""

    def _fetched(self, source: ModelConfig | TokenizerConfig) -> Path:
        found = self._local(source)
        return found if found is not None else super()._fetched(source)

    def has(self, source: ModelConfig | TokenizerConfig) -> bool:
        """Whether its files are here."""
        return self._local(source) is not None

    def _local(self, source: ModelConfig | TokenizerConfig) -> Path | None:
        if source.folder is not None:
            folder = self.base / source.folder
            return folder if folder.is_dir() else None
        if source.named is not None:
            made = list((self.cache / "models").glob(f"{source.named}-*/model"))
            return made[0] if len(made) == 1 else None
        return _snapshot(source)


def _snapshot(source: ModelConfig | TokenizerConfig) -> Path | None:
    """A Hub id in the Hub's own cache."""
    import huggingface_hub

    try:
        return Path(
            huggingface_hub.snapshot_download(
                source.hub or "", revision=source.revision, local_files_only=True
            )
        )
    except (OSError, ValueError):  # not there, or no id
        return None


def open_plan(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    rented_as: Instance | None = None,
    nodes: int | None = None,
    report: Report = print,
    cut_inside: bool = False,
) -> PlanJob:
    """The job of a recipe or a run, resolved for this machine or for nodes of an instance.

    With `cut_inside`, a copy of the model is cut over no more processes than a node has.
    """
    file = recipe_file(path)
    backend, devices = (rented_as.backend, rented_as.devices) if rented_as is not None else machine_here()
    if rented_as is not None and nodes is not None:
        overrides = [*overrides, *_on_nodes(nodes)]
        if cut_inside and load_recipe(file, overrides).recipe.parallel.tensor_parallel_size > devices:
            overrides = [*overrides, f"parallel.tensor_parallel_size={devices}"]
    loaded = load_recipe(file, list(overrides))
    if rented_as is None and loaded.recipe.target.backend != "auto":
        backend = loaded.recipe.target.backend
    resolved = resolve(loaded.recipe, backend=backend, devices=devices)
    recipe = with_absolute_paths(resolved.recipe, loaded.base)
    run = path if path.is_dir() else Path(recipe.runs) / recipe.name
    return PlanJob(
        recipe=recipe,
        base=loaded.base,
        run=RunFolder(run.absolute()),
        cache=cache_folder(),
        backend=backend,
        report=report,
        warnings=resolved.warnings,
    )


def recipe_file(path: Path) -> Path:
    """Of a recipe, or of the run that this is the folder of."""
    return path / "recipe.yaml" if path.is_dir() else path


def _on_nodes(nodes: int) -> list[str]:
    """All processes of so many nodes."""
    return [
        "target.kind=slurm",
        f"target.nodes={nodes}",
        "target.processes_per_node=auto",
        "parallel.data_parallel_size=auto",
    ]


def machine_here() -> tuple[str, int]:
    """Backend and devices of this machine; torch is only asked where there may be a GPU."""
    if _NVIDIA.exists():
        from kitae.backend.table import BACKENDS, select

        name = select().name
        return name, max(1, BACKENDS[name].devices())
    return "cpu", 1


def shape_of(job: PlanJob, *, guess: bool) -> Shape:
    """The model to train; its weights are not read.

    With `guess`, a preset whose tokenizer would have to be fetched has the vocabulary of the preset, and a
    model that is there, of sizes that the catalogue has, those.
    """
    model, tokenizer = job.recipe.model, job.recipe.data.tokenizer
    if guess and model.preset is not None and _is_far(job, tokenizer):
        rows = preset_shape(model)["vocab_size"] or _preset_rows(model)
        config = target_of(job, hf_config_of(model, rows))
        note = f"the tokenizer is not here: {rows:,} rows of the vocabulary, as the preset has"
        return Shape(config, bool(parse_config(config).tie_word_embeddings), note)
    published = preset_of(model.hub) if guess and model.hub is not None and not job.has(model) else None
    if published is not None:
        config = target_of(job, dict(published.config))
        note = f"{model.hub} is not here: the sizes are those of the preset {published.name}"
        return Shape(config, bool(parse_config(config).tie_word_embeddings), note)
    if model.preset is None and model.run is None:
        assert job.model_folder is not None
        found = _folder_shape(job, job.model_folder)
        if found is not None:
            return found
    start = find_start(job)
    return Shape(dict(start.config), start.tied)


def _is_far(job: PlanJob, tokenizer: TokenizerConfig | str) -> bool:
    """Whether a tokenizer would have to come from the Hub or out of a package."""
    return isinstance(tokenizer, TokenizerConfig) and tokenizer.folder is None and not job.has(tokenizer)


def _preset_rows(model: ModelConfig) -> int:
    from kitae.catalog import preset

    rows: int = preset(model.preset or "").config["vocab_size"]
    return rows


def _folder_shape(job: PlanJob, folder: Path) -> Shape | None:
    """From config.json and the names of the tensors; None where only their values tell."""
    names = tensor_names(folder)
    if not names or not (folder / "config.json").is_file():
        return None
    config = target_of(job, read_json(folder / "config.json"))
    says_tied = bool(parse_config(config).tie_word_embeddings)
    if job.recipe.objective == "causal-lm" and HEAD in names:
        return None if says_tied else Shape(config, False)
    return Shape(config, True)


def tensor_names(folder: Path) -> set[str]:
    """Names in the safetensors files of a folder, from their headers; none where they cannot be read."""
    names: set[str] = set()
    try:
        for path in folder.glob("*.safetensors"):
            with path.open("rb") as file:
                (size,) = struct.unpack("<Q", file.read(8))
                names |= json.loads(file.read(min(size, 100_000_000))).keys() - {"__metadata__"}
    except (OSError, ValueError, struct.error):
        return set()
    return names


def estimate_of(
    job: Job,
    shape: Shape,
    machine: Machine,
    rent: Rent | None = None,
    *,
    mtbf_hours: float = float("inf"),
) -> Estimate:
    """The plan of all phases. Raises `RecipeError` for a cut that the model does not allow."""
    rows = epoch_rows(job, "train")
    return estimate(
        stretches(job, shape),
        machine,
        rows=rows,
        rent=rent,
        text_bytes=text_bytes(job),
        mtbf_hours=mtbf_hours,
    )


def stretches(job: Job, shape: Shape) -> list[Stretch]:
    """Phases of a job. Raises `RecipeError` for a cut that the model does not allow."""
    config = parse_config(shape.config)
    found = []
    for name, recipe in job.phases:
        if recipe.parallel.tensor_parallel_size > 1:
            check_cut(recipe, shape.config)
        saves, looks = recipe.checkpoint, recipe.evaluation
        found.append(
            Stretch(
                name=name,
                work=work_of(recipe, config, shape.tied, job.backend),
                length=recipe.training.duration,
                save_every=saves.every if isinstance(saves.every, Duration) else None,
                look_every=looks.every if isinstance(looks.every, Duration) else None,
                heldout_rows=_heldout_rows(job, recipe),
                saves_beside=saves.asynchronous,
            )
        )
    return found


def _heldout_rows(job: Job, recipe: Recipe) -> int:
    """Of an evaluation: as many as the recipe says, or the prepared text has; 0 where nobody knows."""
    if recipe.data.heldout is None:
        return 0
    return recipe.evaluation.max_rows or epoch_rows(job, "heldout") or 0


def epoch_rows(job: Job, split: str) -> int | None:
    """Rows of an epoch, or to hold out: of the prepared text, or as many as the recipe draws."""
    labels = job.recipe.data.labels
    fields = {"train": "sample", "heldout": "sample_heldout"}
    drawn = getattr(labels, fields[split]) if labels is not None else None
    card = _card(job)
    rows: int | None = card.get("splits", {}).get(split, {}).get("rows", drawn) if card is not None else drawn
    return rows


def _card(job: Job) -> dict[str, Any] | None:
    """Of the prepared text; None where nothing has been prepared, or what that depends on is not here."""
    tokenizer = job.recipe.data.tokenizer
    if isinstance(tokenizer, TokenizerConfig) and isinstance(job, PlanJob) and not job.has(tokenizer):
        return None
    try:
        return read_json(job.cache / "data" / job.data_keys[-1] / "card.json")
    except KitaeError:  # the text that the key reads is missing
        return None


def text_bytes(job: Job) -> int | None:
    """Of files that are to be prepared; 0 when they are, None when they are not here."""
    if _card(job) is not None:
        return 0
    total = 0
    for _, recipe in job.phases:
        for source in recipe.data.train:
            sizes = [] if source.path is None else [one.stat().st_size for one in _files(Path(source.path))]
            if not sizes:
                return None
            total += sum(sizes)
    return total


def _files(path: Path) -> list[Path]:
    """A file, all of a folder, or those that a pattern names."""
    if path.is_dir():
        return [one for one in path.rglob("*") if one.is_file()]
    parts = path.expanduser().parts
    return [one for one in Path(parts[0]).glob(str(Path(*parts[1:]))) if one.is_file()]


def machine_of(job: Job, rented_as: Instance | None) -> Machine:
    """The nodes that a resolved recipe asks for."""
    processes = world_size(job.recipe)
    if rented_as is None:
        return local_machine(processes)
    nodes = -(-processes // rented_as.devices)
    if nodes > 1 and not rented_as.efa:
        raise RecipeError(
            f"--instance {rented_as.name}: {processes} processes need {nodes} of it, and collectives between "
            "machines need EFA, which it lacks; take fewer processes or another instance"
        )
    return rented(rented_as, nodes)


@dataclass(frozen=True)
class Candidate:
    """One line of a comparison: a plan, or why there is none."""

    name: str
    nodes: int
    found: Estimate | None
    problem: str | None = None


def compare(
    path: Path, overrides: Sequence[str], entries: Sequence[tuple[str, int]], rent: Rent
) -> list[Candidate]:
    """The same recipe on several kinds of nodes."""
    lines = []
    for name, nodes in entries:
        one = trainable(name)
        try:
            job = open_plan(path, overrides, rented_as=one, nodes=nodes, report=unsaid, cut_inside=True)
            found = estimate_of(job, shape_of(job, guess=True), machine_of(job, one), rent)
            lines.append(Candidate(name, nodes, found))
        except RecipeError as error:
            lines.append(Candidate(name, nodes, None, str(error)))
    return lines


def unsaid(line: str) -> None:
    """Reports nothing: there would be a line for each machine."""


def trainable(name: str) -> Instance:
    """An instance that has accelerators. Raises `RecipeError`."""
    found = instance(name)
    if found.chip is None:
        raise RecipeError(
            f"--instance {name}: it has no accelerator; kitae catalog list shows those that have"
        )
    return found
