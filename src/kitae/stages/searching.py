"""The cheapest and the fastest topology for a recipe, and the words that make the recipe so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from kitae.catalog import Instance, instance, instances
from kitae.errors import RecipeError
from kitae.plan.estimate import Estimate
from kitae.plan.machine import rented
from kitae.plan.money import Rent, price_in
from kitae.plan.phases import span
from kitae.plan.search import Aim, Search, Way, bound, cheapest, fastest, next_best
from kitae.recipe.load import load_recipe
from kitae.recipe.schema import Recipe
from kitae.stages.estimating import (
    PlanJob,
    epoch_rows,
    estimate_of,
    machine_of,
    open_plan,
    recipe_file,
    shape_of,
    stretches,
    text_bytes,
    trainable,
    unsaid,
)

MOST_NODES = 64
"""Up to where is searched where nobody says."""


@dataclass(frozen=True)
class Limits:
    """What a way must keep to."""

    most_usd: Decimal | None = None
    end: datetime | None = None
    now: datetime | None = None

    def keep(self, ways: Sequence[Way]) -> list[Way]:
        """Ways within them; one whose cost is unknown is within no limit of it."""
        left = (self.end - self.now).total_seconds() if self.end and self.now else float("inf")
        most = float("inf") if self.most_usd is None else float(self.most_usd)
        return [
            one
            for one in ways
            if one.longest_s <= left and (self.most_usd is None or (one.usd is not None and one.usd <= most))
        ]


@dataclass(frozen=True)
class Proposal:
    """One of the ways, why it, and how to have it."""

    aim: str
    """cheapest or fastest."""
    way: Way
    bounded: str
    """What its update spends most time in."""
    others: tuple[str, ...]
    """What the best way with another value loses, a line for each dimension."""
    words: tuple[str, ...]
    """What comes behind `--set`."""
    found: Estimate
    """The plan of the recipe with those words."""
    notes: tuple[str, ...]
    """What was taken for want of files."""


def search(
    path: Path,
    overrides: Sequence[str],
    names: Sequence[str],
    most_nodes: int,
    rent: Rent,
    limits: Limits,
) -> list[Proposal]:
    """The cheapest and the fastest way among all that fit, on the named machines or all with a known price.

    Raises `RecipeError` where none fits, or none keeps to the limits.
    """
    machines = _machines(names, rent)
    ways: list[Way] = []
    for one in machines:
        ways += _searched(path, overrides, one, most_nodes, rent).ways(one)
    if not ways:
        listed = ", ".join(one.name for one in machines)
        linked = any(one.efa for one in machines)
        most, more = (f", up to {most_nodes} nodes", "more --nodes, ") if linked else ("", "")
        raise RecipeError(
            f"--search: this fits on none of {listed}{most}, however it is cut; take {more}another instance, "
            "a smaller model, or shorter rows"
        )
    kept = limits.keep(ways)
    if not kept:
        raise RecipeError(_none_left(ways))
    aims: list[tuple[str, Way | None, Aim]] = [
        ("cheapest", cheapest(kept), _usd),
        ("fastest", fastest(kept), _train_s),
    ]
    raw = load_recipe(recipe_file(path), list(overrides)).recipe
    return [
        _proposal(name, way, aim, kept, path, overrides, raw, rent)
        for name, way, aim in aims
        if way is not None
    ]


def _machines(names: Sequence[str], rent: Rent) -> list[Instance]:
    if names:
        return [trainable(name) for name in names]
    known = [one for one in instances().values() if one.chip is not None and price_in(one.name, rent)]
    return sorted(known, key=lambda one: one.name)


def _searched(path: Path, overrides: Sequence[str], one: Instance, most: int, rent: Rent) -> Search:
    """The recipe as one process on this machine would train it: what is spread is put in later."""
    raw = load_recipe(recipe_file(path), list(overrides)).recipe
    alone = [
        "target.kind=local",
        "target.nodes=1",
        "target.processes_per_node=auto",
        "parallel.tensor_parallel_size=1",
        "parallel.data_parallel_size=1",
        "parallel.sequence_parallel=false",
        "parallel.zero1=auto",
        "training.micro_batch_size=1",
        "evaluation.micro_batch_size=auto",
        *(f"phases.{index}.training.micro_batch_size=1" for index in range(len(raw.phases))),
        *batch_words(raw),
    ]
    job = open_plan(path, [*overrides, *alone], rented_as=one, report=unsaid)
    found = stretches(job, shape_of(job, guess=True))
    rows = epoch_rows(job, "train")
    if rows is None and any(stretch.length.unit == "epochs" for stretch in found):
        raise RecipeError(
            "--search: the length is unknown; write training.duration in steps or tokens, or run kitae "
            "prepare"
        )
    return Search(tuple(found), most, rent, rows, text_bytes(job))


def batch_words(raw: Recipe) -> Iterator[str]:
    """Where the batch is that of each copy, what keeps the whole batch, however many copies there are."""
    copies = raw.parallel.data_parallel_size
    if raw.parallel.keep_global_batch:
        return
    factor = copies if copies != "auto" else 1
    yield "parallel.keep_global_batch=true"
    yield f"training.global_batch_size={raw.training.global_batch_size * factor}"
    for index, phase in enumerate(raw.phases):
        if phase.training.global_batch_size is not None:
            yield f"phases.{index}.training.global_batch_size={phase.training.global_batch_size * factor}"


def words_of(way: Way, raw: Recipe) -> tuple[str, ...]:
    """What comes behind `--set` to have a way."""
    parallel = {
        "tensor_parallel_size": way.tensor_parallel,
        "sequence_parallel": str(way.sequence_parallel).lower(),
        "data_parallel_size": way.works[0].data_parallel,
        "zero1": str(way.zero1).lower(),
    }
    words = [f"parallel.{name}={value}" for name, value in parallel.items()]
    words += batch_words(raw)
    sections = [f"phases.{index}.training" for index in range(len(raw.phases))] or ["training"]
    for section, rows, recompute in zip(sections, way.rows, way.recompute, strict=True):
        words += [f"{section}.micro_batch_size={rows}", f"{section}.recompute={recompute}"]
    if raw.evaluation.micro_batch_size != "auto":
        words.append("evaluation.micro_batch_size=auto")
    if raw.target.kind != "local":
        words += [f"target.nodes={way.nodes}", "target.processes_per_node=auto"]
    return tuple(words)


def _proposal(
    name: str,
    way: Way,
    aim: Aim,
    ways: Sequence[Way],
    path: Path,
    overrides: Sequence[str],
    raw: Recipe,
    rent: Rent,
) -> Proposal:
    one = instance(way.instance)
    words = words_of(way, raw)
    job: PlanJob = open_plan(path, [*overrides, *words], rented_as=one, nodes=way.nodes, report=unsaid)
    shape = shape_of(job, guess=True)
    part, share = bound(way, rented(one, way.nodes))
    same = [other for other in ways if other.usd is not None] if aim is _usd else ways
    return Proposal(
        aim=name,
        way=way,
        bounded=f"{part}: {share:.0%} of an update",
        others=tuple(_loss(*entry, way) for entry in next_best(way, same, aim)),
        words=words,
        found=estimate_of(job, shape, machine_of(job, one), rent),
        notes=shape.notes,
    )


def _loss(dimension: str, other: Way, loss: float, way: Way) -> str:
    """One line: the best other value, all that comes with it, and what it loses."""
    more = "as good" if loss < 0.0005 else f"{loss:+.1%}"
    return f"another {dimension}: {more} with {short(other)}"


def short(way: Way) -> str:
    """A way in a few words."""
    flags = [name for name, on in (("sequence parallel", way.sequence_parallel), ("ZeRO-1", way.zero1)) if on]
    rows = ", ".join(f"{rows} ({mode})" for rows, mode in zip(way.rows, way.recompute, strict=True))
    cut = f"tp {way.tensor_parallel}, dp {way.works[0].data_parallel}"
    return f"{way.nodes} x {way.instance}: {', '.join([cut, *flags])}, micro-batch {rows}"


def _none_left(ways: Sequence[Way]) -> str:
    quick, cheap = fastest(ways), cheapest(ways)
    assert quick is not None, "there are ways"
    text = f"--search: none keeps to --max-cost and --until; the fastest may take {span(quick.longest_s)}"
    return text + (f", the cheapest costs ${cheap.usd:,.2f}" if cheap is not None else "")


def _usd(way: Way) -> float:
    assert way.usd is not None, "only those with a price are compared"
    return way.usd


def _train_s(way: Way) -> float:
    return way.train_s


def as_json(one: Proposal) -> dict[str, Any]:
    """A proposal for machines."""
    from kitae.plan.facts import as_json as facts_of

    way = one.way
    return {
        "aim": one.aim,
        "instance": way.instance,
        "nodes": way.nodes,
        "tensor_parallel_size": way.tensor_parallel,
        "data_parallel_size": way.works[0].data_parallel,
        "sequence_parallel": way.sequence_parallel,
        "zero1": way.zero1,
        "micro_batch_size": list(way.rows),
        "recompute": list(way.recompute),
        "bounded_by": one.bounded,
        "others": list(one.others),
        "set": list(one.words),
        "plan": facts_of(one.found, *one.notes),
    }
