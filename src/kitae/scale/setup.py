"""What is to be measured: a recipe at each width, in folders of its own, in the order of the rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kitae.errors import RecipeError
from kitae.plan.identity import identity
from kitae.recipe.load import load_recipe
from kitae.recipe.paths import with_absolute_paths
from kitae.recipe.schema import Recipe
from kitae.scale.recipes import TARGETS, Wanted, at_width, bare, one_phase, sharing_of, shown
from kitae.scale.record import ASIDE, scale_folder
from kitae.scale.share import Share
from kitae.stages.files import key_of, read_json, write_json
from kitae.storage.files import replace_file

MEASURED, FAILED, _ORDER, _SETUP = "measured.json", "failed.json", "order.json", "setup.json"
"""Files of a measurement's folder: what came out, why nothing did, and what is asked for. That of all."""
TRIALS, BASE = "trials", "base"


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
        phase, recipe = one_phase(whole, wanted.phase)
        given = wanted.recipe
        run = given.absolute() if given.is_dir() else Path(recipe.runs).absolute() / recipe.name
        folder = scale_folder(run, wanted.kind, wanted.unit, phase)
        prepared = TARGETS[wanted.unit](bare(recipe), wanted)
        shares = sharing_of(recipe, prepared, wanted).of(wanted.widths)
        recipes = {one.width: at_width(prepared, one, folder / TRIALS, wanted.unit) for one in shares}
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
            "recipes": [shown(recipe) for recipe in self.recipes.values()],
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
    """Move a folder of measurements away; where it is now, None where there is none."""
    if not folder.exists():
        return None
    old = folder.parent / ASIDE
    old.mkdir(exist_ok=True)
    names = (old / f"{folder.name}-{number}" for number in range(1, 10_000))
    return folder.rename(next(name for name in names if not name.exists()))


def note_failure(folder: Path, why: str) -> None:
    """Keep why a measurement gave nothing."""
    write_json(folder / FAILED, {"why": why})


def failure(folder: Path) -> str | None:
    """Why a measurement gave nothing, if it said so."""
    why: str | None = read_json(folder / FAILED).get("why")
    return why


def _file(path: Path) -> Path:
    from kitae.launch.slurm.chain import recipe_file

    file = recipe_file(path)
    if path.is_dir() and not file.is_file():
        raise RecipeError(f"{path} is neither a recipe nor a run of kitae: there is no recipe.yaml in it")
    return file


def _name(width: int, number: int) -> str:
    return f"w{width:04d}-r{number}"


def _text(recipe: Recipe) -> str:
    from kitae.launch.slurm.chain import given

    return given(recipe)
