"""Scaling curves of a recipe on an instance of the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kitae.catalog import Instance
from kitae.errors import RecipeError
from kitae.plan import MOST_NODES
from kitae.plan.machine import rented
from kitae.plan.money import Rent, price_in
from kitae.plan.scaling import Frame, Point, curve, nodes_between
from kitae.recipe.load import load_recipe
from kitae.stages.estimating import PlanJob, open_plan, recipe_file, shape_of, stretches, unsaid


@dataclass(frozen=True)
class Curve:
    """Of one phase."""

    phase: str | None
    frame: Frame
    counts: Sequence[int]
    points: Sequence[Point]


def simulate(
    path: Path,
    overrides: Sequence[str],
    one: Instance,
    nodes: tuple[int, int],
    *,
    weak: bool,
    mtbf_hours: float,
    rent: Rent,
) -> list[Curve]:
    """A curve for each phase, over numbers of nodes from `nodes[0]` to `nodes[1]`.

    Raises `RecipeError` where no number of nodes can share an update, or several are asked for of an
    instance that cannot talk to others.
    """
    first, last = nodes
    if last > 1 and not one.efa:
        raise RecipeError(
            f"--instance {one.name}: collectives between machines need EFA, which it lacks; take another "
            "instance, or --simulate nodes=1..1"
        )
    job, base = _base(path, overrides, one, first, last)
    raw = load_recipe(recipe_file(path), list(overrides)).recipe
    price = price_in(one.name, rent)
    counts, found = nodes_between(first, last), []
    for stretch in stretches(job, shape_of(job, guess=True)):
        frame = Frame(
            work=stretch.work,
            machine=rented(one, base),
            base_nodes=base,
            weak=weak,
            mtbf_hours=mtbf_hours,
            save_every=stretch.save_every,
            usd_an_hour=None if price is None else float(price),
            saves_beside=stretch.saves_beside,
            shares_optimizer=bool(raw.parallel.zero1),
        )
        points = curve(frame, counts)
        if not points:
            raise RecipeError(
                f"--simulate: none of {', '.join(map(str, counts))} nodes can share "
                f"{stretch.work.global_rows} rows of an update evenly; take another range, or --weak"
            )
        found.append(Curve(stretch.name, frame, counts, points))
    return found


def _base(path: Path, overrides: Sequence[str], one: Instance, first: int, last: int) -> tuple[PlanJob, int]:
    """The recipe on the nodes that it names, else on as few as can share an update."""
    problem: RecipeError | None = None
    for nodes in _tried(path, overrides, first, last):
        try:
            return open_plan(path, overrides, rented_as=one, nodes=nodes, report=unsaid), nodes
        except RecipeError as error:
            problem = problem or error
    assert problem is not None, "something was tried"
    raise problem


def _tried(path: Path, overrides: Sequence[str], first: int, last: int) -> Iterator[int]:
    target = load_recipe(recipe_file(path), list(overrides)).recipe.target
    if target.kind != "local":
        yield target.most
    yield from range(first, min(last, first + 256) + 1)


def parse_range(text: str) -> tuple[int, int]:
    """`nodes=1..1024`, or without `nodes=`. Raises `RecipeError`."""
    first, dots, last = text.strip().removeprefix("nodes=").partition("..")
    if not (dots and first.isdecimal() and last.isdecimal()):
        raise RecipeError(f"--simulate: {text!r} is not FIRST..LAST nodes, such as nodes=1..1024")
    low, high = int(first), int(last)
    if not 1 <= low <= high <= MOST_NODES:
        raise RecipeError(f"--simulate: {text}: give numbers from 1 to {MOST_NODES:,}, the smaller one first")
    return low, high
