"""What is to be measured: a recipe at each width, in folders of its own, in the order of the rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kitae.errors import RecipeError
from kitae.plan.identity import identity
from kitae.recipe.load import load_recipe
from kitae.recipe.paths import with_absolute_paths
from kitae.recipe.resolve import MICRO_BATCH_TOKENS
from kitae.recipe.schema import Recipe, phase_recipe
from kitae.recipe.training import CheckpointConfig
from kitae.scale.record import ASIDE, scale_folder
from kitae.scale.share import Kind, Share, Sharing
from kitae.stages.files import key_of, read_json, write_json
from kitae.storage.files import replace_file
from kitae.suggest import did_you_mean

MEASURED, FAILED, _ORDER, _SETUP = "measured.json", "failed.json", "order.json", "setup.json"
"""Files of a measurement's folder: what came out, why nothing did, and what is asked for. That of all."""
TRIALS, BASE = "trials", "base"


@dataclass(frozen=True)
class Wanted:
    """What a person asks for."""

    recipe: Path
    changes: Sequence[str]
    kind: Kind
    unit: str
    """workers (processes of this machine) or nodes (of Slurm)."""
    widths: Sequence[int]
    repeats: int
    steps: int
    """Updates that count."""
    warm_up: int
    """Updates before them, which do not."""
    threshold: float
    phase: str | None = None
    instance: str | None = None
    """What the nodes are, for the plan."""


@dataclass(frozen=True)
class Order:
    """One measurement."""

    width: int
    round: int
    updates: int
    warm_up: int
    key: str

    def as_json(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)

    @classmethod
    def read(cls, folder: Path) -> Order:
        """That of a folder."""
        return cls(**read_json(folder / _ORDER))


@dataclass(frozen=True)
class Setup:
    """All that is to be measured."""

    wanted: Wanted
    name: str
    folder: Path
    recipes: dict[int, Recipe]
    """By width; with absolute paths, and whatever depends on the machine left open."""
    shares: dict[int, Share]
    phase: str | None
    """The phase that is measured, where there are several."""

    @classmethod
    def of(cls, wanted: Wanted) -> Setup:
        """Raises `RecipeError` for a recipe or a width that cannot be measured."""
        loaded = load_recipe(_file(wanted.recipe), list(wanted.changes))
        whole = with_absolute_paths(loaded.recipe, loaded.base)
        phase, recipe = _one_phase(whole, wanted.phase)
        run = Path(recipe.runs).absolute() / recipe.name
        folder = scale_folder(run, wanted.kind, wanted.unit, phase)
        prepared = _TARGETS[wanted.unit](_bare(recipe), wanted)
        shares = _sharing(recipe, prepared, wanted).of(wanted.widths)
        recipes = {one.width: _at(prepared, one, folder, wanted.unit) for one in shares}
        return cls(wanted, recipe.name, folder, recipes, {one.width: one for one in shares}, phase)

    @property
    def base(self) -> Recipe:
        """The recipe that text and weights are prepared with, once for all widths."""
        changes = {"name": BASE, "runs": str(self.folder)}
        return self.recipes[min(self.recipes)].model_copy(update=changes)

    @property
    def key(self) -> str:
        """Of what measurements must share to be compared: not of their number."""
        wanted = self.wanted
        parts = {
            "recipes": [_shown(recipe) for recipe in self.recipes.values()],
            "steps": [wanted.warm_up, wanted.steps],
            "widths": list(wanted.widths),
            "machine": identity().key if wanted.unit == "workers" else None,
        }
        return key_of(parts)

    def orders(self) -> Iterator[Order]:
        """Every measurement: round after round all widths, up in one and down in the next."""
        wanted = self.wanted
        for number in range(1, wanted.repeats + 1):
            widths = sorted(wanted.widths, reverse=number % 2 == 0)
            for width in widths:
                yield Order(width, number, wanted.warm_up + wanted.steps, wanted.warm_up, self.key)

    def place(self, order: Order) -> Path:
        """The folder of a measurement."""
        return self.folder / TRIALS / _name(order.width, order.round)

    def is_done(self, order: Order) -> bool:
        """Whether it has been made."""
        return read_json(self.place(order) / MEASURED).get("key") == self.key

    def missing(self) -> list[Order]:
        """Measurements that are still to be made."""
        return [order for order in self.orders() if not self.is_done(order)]

    def begin(self) -> Path | None:
        """Take the folder for this; measurements of something else are set aside: where they are now."""
        before = read_json(self.folder / _SETUP).get("key")
        aside = None
        if before is not None and before != self.key:
            aside = set_aside(self.folder)
        write_json(self.folder / _SETUP, {"key": self.key, "kind": self.wanted.kind})
        replace_file(self.folder / BASE / "recipe.yaml", _text(self.base).encode())
        return aside

    def lay_out(self, order: Order) -> Path:
        """Make the folder of a measurement, with its recipe; where it is."""
        folder = self.place(order)
        name = {"name": folder.name}
        replace_file(
            folder / "recipe.yaml", _text(self.recipes[order.width].model_copy(update=name)).encode()
        )
        write_json(folder / _ORDER, order.as_json())
        (folder / FAILED).unlink(missing_ok=True)
        (folder / "logs").mkdir(exist_ok=True)
        return folder


def set_aside(folder: Path) -> Path | None:
    """Rename a folder of measurements; where it is now, None where there is none."""
    if not folder.exists():
        return None
    names = (folder.with_name(f"{folder.name}{ASIDE}{number}") for number in range(1, 10_000))
    return folder.rename(next(name for name in names if not name.exists()))


def note_failure(folder: Path, why: str) -> None:
    """Keep why a measurement gave nothing."""
    write_json(folder / FAILED, {"why": why})


def failure(folder: Path) -> str | None:
    """Why a measurement gave nothing, if it said so."""
    why: str | None = read_json(folder / FAILED).get("why")
    return why


def _file(path: Path) -> Path:
    if path.is_dir() and not (path / "recipe.yaml").is_file():
        raise RecipeError(f"{path} is neither a recipe nor a run of kitae: there is no recipe.yaml in it")
    return path / "recipe.yaml" if path.is_dir() else path


def _name(width: int, number: int) -> str:
    return f"w{width:04d}-r{number}"


def _one_phase(recipe: Recipe, name: str | None) -> tuple[str | None, Recipe]:
    """The recipe as one of its phases, by default the first."""
    names = [phase.name for phase in recipe.phases]
    if name is not None and name not in names:
        there = f"; its phases are {', '.join(names)}" if names else "; it has no phases"
        raise RecipeError(f"--phase {name}: the recipe has no such phase{did_you_mean(name, names)}{there}")
    if not names:
        return None, recipe
    name = name or names[0]
    return name, phase_recipe(recipe, names.index(name))


_NOT_MEASURED = ("sample", "tensorboard", "tracking", "watch", "checkpoint")
"""Sections of what a measurement leaves out, as far as recipes have them."""


def _bare(recipe: Recipe) -> Recipe:
    fields = type(recipe).model_fields
    there = [name for name in _NOT_MEASURED if name in fields]
    plain = {name: fields[name].get_default(call_default_factory=True) for name in there}
    return recipe.model_copy(update={**plain, "checkpoint": CheckpointConfig()})


def _here(recipe: Recipe, wanted: Wanted) -> Recipe:
    """On this machine, whatever the recipe is for."""
    changes = {"kind": "local", "nodes": 1, "processes_per_node": "auto", "node_check": False}
    return recipe.model_copy(update={"target": recipe.target.model_copy(update=changes)})


def _on_slurm(recipe: Recipe, wanted: Wanted) -> Recipe:
    """As jobs."""
    if recipe.target.kind == "ssh":
        raise RecipeError(
            "--nodes: a cluster behind a head node is measured from there: copy the recipe to it and run "
            "kitae scale on the head node, with --set target.kind=slurm"
        )
    changes = {"kind": "slurm", "node_check": False}
    return recipe.model_copy(update={"target": recipe.target.model_copy(update=changes)})


_TARGETS = {"workers": _here, "nodes": _on_slurm}


def _sharing(recipe: Recipe, prepared: Recipe, wanted: Wanted) -> Sharing:
    """How widths share the update; `recipe` says what its batch is meant for."""
    processes = 1 if wanted.unit == "workers" else _processes(prepared)
    copies, tp_size = recipe.parallel.data_parallel_size, recipe.parallel.tensor_parallel_size
    micro, rows = recipe.training.micro_batch_size, recipe.training.global_batch_size
    own = copies if copies != "auto" else None
    if own is None and recipe.target.most > 1 and wanted.unit == "nodes":
        own = recipe.target.most * processes // tp_size or None
    sharing = Sharing(
        kind=wanted.kind,
        unit=wanted.unit,
        processes=processes,
        tensor_parallel=tp_size,
        rows=rows,
        own_copies=own,
        micro=None if micro == "auto" else micro,
        micro_tokens=MICRO_BATCH_TOKENS,
        length=recipe.data.sequence_length,
    )
    # Where the batch is that of a copy, the update is what the recipe's own copies make of it.
    return (
        sharing
        if recipe.parallel.keep_global_batch
        else replace(sharing, rows=rows * sharing.own(wanted.widths))
    )


def _processes(recipe: Recipe) -> int:
    """Of a node. Raises `RecipeError` where only the nodes would know."""
    given, backend = recipe.target.processes_per_node, recipe.target.backend
    if given != "auto":
        return given
    if backend in ("auto", "cpu"):
        return 1
    raise RecipeError(
        f"--nodes: how many processes a node has ({backend}) is not known here, and the batch depends on it: "
        "give it with --set target.processes_per_node=32"
    )


def _at(recipe: Recipe, share: Share, folder: Path, unit: str) -> Recipe:
    """The recipe at one width."""
    training = {"global_batch_size": share.rows, "micro_batch_size": share.micro}
    parallel = {"data_parallel_size": share.copies, "keep_global_batch": True}
    target = {"nodes": share.width} if unit == "nodes" else {}
    changed = recipe.model_copy(
        update={
            "runs": str(folder / TRIALS),
            "training": recipe.training.model_copy(update=training),
            "parallel": recipe.parallel.model_copy(update=parallel),
            "target": recipe.target.model_copy(update=target),
        }
    )
    changed.check()
    return changed


def _shown(recipe: Recipe) -> dict[str, Any]:
    """What measurements of a recipe depend on."""
    values = recipe.model_dump(mode="json", exclude={"name", "runs", "target", "export", "proof"})
    target = recipe.target.model_dump(mode="json", include=set(_MACHINE))
    return {**values, "target": target}


_MACHINE = ("kind", "backend", "nodes", "processes_per_node", "partition", "constraint", "gres")
"""Fields of the target that say what is measured on."""


def _text(recipe: Recipe) -> str:
    from kitae.launch.slurm.chain import given

    return given(recipe)
