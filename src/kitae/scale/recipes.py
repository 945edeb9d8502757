"""A recipe as it is measured: one phase of it, at each width, where its widths are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kitae.errors import RecipeError
from kitae.recipe.resolve import MICRO_BATCH_TOKENS
from kitae.recipe.schema import Recipe, phase_recipe
from kitae.recipe.training import CheckpointConfig
from kitae.scale.share import Kind, Share, Sharing
from kitae.suggest import did_you_mean


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


def one_phase(recipe: Recipe, name: str | None) -> tuple[str | None, Recipe]:
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


def bare(recipe: Recipe) -> Recipe:
    """The recipe without what is beside its training."""
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


TARGETS = {"workers": _here, "nodes": _on_slurm}
"""What is counted -> the recipe for where that is."""


def sharing_of(recipe: Recipe, prepared: Recipe, wanted: Wanted) -> Sharing:
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


def at_width(recipe: Recipe, share: Share, trials: Path, unit: str) -> Recipe:
    """The recipe at one width."""
    training = {"global_batch_size": share.rows, "micro_batch_size": share.micro}
    parallel = {"data_parallel_size": share.copies, "keep_global_batch": True}
    target = {"nodes": share.width} if unit == "nodes" else {}
    changed = recipe.model_copy(
        update={
            "runs": str(trials),
            "training": recipe.training.model_copy(update=training),
            "parallel": recipe.parallel.model_copy(update=parallel),
            "target": recipe.target.model_copy(update=target),
        }
    )
    changed.check()
    return changed


def shown(recipe: Recipe) -> dict[str, Any]:
    """What measurements of a recipe depend on."""
    values = recipe.model_dump(mode="json", exclude={"name", "runs", "target", "export", "proof"})
    target = recipe.target.model_dump(mode="json", include=set(_MACHINE))
    return {**values, "target": target}


_MACHINE = ("kind", "backend", "nodes", "processes_per_node", "partition", "constraint", "gres")
"""Fields of the target that say what is measured on."""
