"""Automatic values become concrete, each with the reason; settings without effect are named."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from kitae.errors import RecipeError
from kitae.recipe.base import Duration, Section
from kitae.recipe.phases import PhaseConfig
from kitae.recipe.schema import Recipe, global_batch_size, phase_recipe
from kitae.recipe.sources import TokenizerConfig
from kitae.recipe.warn import warnings_of
from kitae.recipe.yaml_positions import RecipeDumper
from kitae.suggest import did_you_mean

MICRO_BATCH_TOKENS = 8192
"""How many tokens an automatic micro-batch may hold."""

_NOT_IN_FILES = "known when the tokenizer is loaded"
_PRECISIONS = {
    "cpu": ("fp32", "bf16 pays only on CPUs with instructions for it"),
    "cuda": ("bf16", "fast and half the memory; master weights stay fp32"),
    "xla": ("bf16", "fast and half the memory; master weights stay fp32"),
    "neuron": ("bf16", "fast and half the memory; master weights stay fp32"),
}


@dataclass(frozen=True)
class Machine:
    """Where the recipe will run."""

    backend: str
    devices: int
    """How many devices of that backend there are; of each node, where there are several."""


@dataclass(frozen=True)
class Choice:
    """An automatic value: what it becomes, and why. A value that only the data can tell stays `auto`."""

    path: str
    value: Any
    reason: str


@dataclass(frozen=True)
class ResolvedRecipe:
    """A recipe with all automatic values that can be known before any file is opened."""

    recipe: Recipe
    choices: tuple[Choice, ...]
    warnings: tuple[str, ...]
    """Settings without effect, each as `path: why`."""


def resolve(recipe: Recipe, *, backend: str, devices: int = 1) -> ResolvedRecipe:
    """Make `auto` concrete for a backend (`cpu`, `cuda`, `xla`, `neuron`) that has `devices` of them here.

    A second time changes nothing.
    """
    if backend not in _PRECISIONS:
        raise RecipeError(f"no backend is called {backend!r}{did_you_mean(backend, _PRECISIONS)}")
    choices: list[Choice] = []
    given = recipe
    for path, choose in _AUTOMATIC.items():
        if _get(recipe, path) == "auto":
            value, reason = choose(recipe, Machine(backend, devices))
            choices.append(Choice(path, value, reason))
            recipe = _replace(recipe, path.split("."), value)
    _world_size(recipe)
    if recipe.phases:
        recipe = recipe.model_copy(update={"phases": _phases(given, backend, devices)})
    return ResolvedRecipe(recipe, tuple(choices), tuple(warnings_of(recipe)))


def _phases(recipe: Recipe, backend: str, devices: int) -> list[PhaseConfig]:
    """The phases with their own micro-batches: what fits rows of one length may not fit another's."""
    found = []
    for index, phase in enumerate(recipe.phases):
        whole = resolve(phase_recipe(recipe, index), backend=backend, devices=devices).recipe
        sizes = {"micro_batch_size": whole.training.micro_batch_size}
        looks = {"micro_batch_size": whole.evaluation.micro_batch_size}
        changed = {"training": phase.training, "evaluation": phase.evaluation}
        updates = {"training": sizes, "evaluation": looks}
        found.append(
            phase.model_copy(
                update={name: one.model_copy(update=updates[name]) for name, one in changed.items()}
            )
        )
    return found


def dump_resolved(recipe: Recipe, *, header: str = "") -> str:
    """YAML that loads to the same recipe, with every value written out; `header` becomes comment lines."""
    comments = "".join(f"# {line}\n" for line in header.splitlines())
    body = yaml.dump(_plain(recipe), Dumper=RecipeDumper, sort_keys=False, allow_unicode=True, width=110)
    return comments + body


def _plain(value: Any) -> Any:
    """Plain values for YAML; what is null by default anyway is left out."""
    if isinstance(value, Section):
        fields = ((name, getattr(value, name), info) for name, info in type(value).model_fields.items())
        return {
            name: _plain(one) for name, one, info in fields if one is not None or info.default is not None
        }
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Duration) else value


def _precision(recipe: Recipe, machine: Machine) -> tuple[str, str]:
    value, reason = _PRECISIONS[machine.backend]
    return value, f"{machine.backend}: {reason}"


def _micro_batch(recipe: Recipe, machine: Machine) -> tuple[int, str]:
    copies = recipe.parallel.data_parallel_size
    assert copies != "auto", "chosen before"
    rows, length = global_batch_size(recipe) // copies, recipe.data.sequence_length
    if length > MICRO_BATCH_TOKENS:
        return 1, f"one row of {length} tokens is more than {MICRO_BATCH_TOKENS} already"
    micro = next(size for size in _divisors(rows) if size * length <= MICRO_BATCH_TOKENS)
    return micro, (
        f"largest divisor of {_rows_of_copy(rows, copies)} whose rows of {length} tokens "
        f"hold at most {MICRO_BATCH_TOKENS} tokens together"
    )


def _rows_of_copy(rows: int, copies: int) -> str:
    return f"global_batch_size ({rows})" if copies == 1 else f"a copy's rows in an update ({rows})"


def _data_parallel(recipe: Recipe, machine: Machine) -> tuple[int, str]:
    if recipe.target.most > 1 or recipe.target.processes_per_node != "auto":
        return _copies_on_nodes(recipe, machine)
    if machine.backend == "cpu":
        return 1, "one process uses all cores of a CPU"
    most = max(1, machine.devices // recipe.parallel.tensor_parallel_size)
    rows = recipe.training.global_batch_size
    allowed = _divisors(rows) if recipe.parallel.keep_global_batch else range(most, 0, -1)
    copies = next(size for size in allowed if size <= most)
    return copies, f"{machine.devices} devices, {recipe.parallel.tensor_parallel_size} for each copy"


def _copies_on_nodes(recipe: Recipe, machine: Machine) -> tuple[int, str]:
    """All processes of all nodes have work: their number follows from the target."""
    tp_size, processes = recipe.parallel.tensor_parallel_size, _processes(recipe, machine)
    nodes = usable_nodes(recipe, recipe.target.most, machine)
    reason = f"nodes ({nodes}) x processes on each ({processes}) / {tp_size} for each copy"
    return nodes * processes // tp_size, reason


def _processes(recipe: Recipe, machine: Machine) -> int:
    """Of each node."""
    given = recipe.target.processes_per_node
    return given if given != "auto" else 1 if machine.backend == "cpu" else machine.devices


def usable_nodes(recipe: Recipe, available: int, machine: Machine) -> int:
    """How many of so many nodes share the work evenly. `RecipeError` when there are too few for that."""
    target, processes = recipe.target, _processes(recipe, machine)
    highest = max(available, target.most)
    fitting = [nodes for nodes in range(1, highest + 1) if _fits(recipe, nodes * processes)]
    usable = [nodes for nodes in fitting if target.least <= nodes <= available]
    if usable:
        return usable[-1]
    rows, tp_size = recipe.training.global_batch_size, recipe.parallel.tensor_parallel_size
    raise RecipeError(
        f"target.nodes: with {processes} processes on each, {tp_size} for a copy of the model, {available} "
        f"cannot share training.global_batch_size ({rows}) evenly; up to {highest} nodes, "
        f"{', '.join(map(str, fitting)) or 'none'} can"
    )


def _fits(recipe: Recipe, processes: int) -> bool:
    copies, rest = divmod(processes, recipe.parallel.tensor_parallel_size)
    if rest or not copies:
        return False
    return not recipe.parallel.keep_global_batch or recipe.training.global_batch_size % copies == 0


def _processes_per_node(recipe: Recipe, machine: Machine) -> tuple[int | str, str]:
    if recipe.target.kind == "local":
        return "auto", "as many as parallel needs"
    nodes, processes = recipe.target.most, _world_size(recipe)
    return processes // nodes, f"{processes} in all, on {nodes} {'node' if nodes == 1 else 'nodes'}"


def _world_size(recipe: Recipe) -> int:
    """Processes of all nodes. Raises `RecipeError` when those cannot have equally many."""
    parallel, target = recipe.parallel, recipe.target
    assert parallel.data_parallel_size != "auto", "chosen before"
    processes = parallel.data_parallel_size * parallel.tensor_parallel_size
    if target.processes_per_node not in ("auto", processes / target.most):
        raise RecipeError(
            f"target.processes_per_node: {target.most} x {target.processes_per_node} are not the {processes} "
            "processes that parallel asks for (data_parallel_size x tensor_parallel_size); change one of them"
        )
    if processes % target.most:
        raise RecipeError(
            f"target.nodes: {processes} processes (data_parallel_size x tensor_parallel_size) cannot be "
            f"shared out to {target.most} nodes evenly; change one of them"
        )
    return processes


def _zero1(recipe: Recipe, machine: Machine) -> tuple[bool, str]:
    copies = recipe.parallel.data_parallel_size
    if copies == 1:
        return False, "there is one copy of the model"
    return True, f"each of the {copies} copies updates its share"


def _divisors(number: int) -> Iterator[int]:
    """Divisors, the largest first."""
    return (size for size in range(min(number, MICRO_BATCH_TOKENS), 0, -1) if number % size == 0)


def _evaluation_micro_batch(recipe: Recipe, machine: Machine) -> tuple[int | str, str]:
    return recipe.training.micro_batch_size, "as in training"


def _tokenizer(recipe: Recipe, machine: Machine) -> tuple[TokenizerConfig | str, str]:
    if recipe.model.run is not None:
        return "auto", "the tokenizer that the run was trained with"
    fields = {name: getattr(recipe.model, name) for name in ("folder", "hub", "revision", "named")}
    return TokenizerConfig(**fields), "the model's own"


def _workers(recipe: Recipe, machine: Machine) -> tuple[str, str]:
    return (
        "auto",
        f"known when the text is read: up to one process for each of the {os.cpu_count() or 1} cores",
    )


def _bos(recipe: Recipe, machine: Machine) -> tuple[str, str]:
    return "auto", f"{_NOT_IN_FILES}: a begin token where the tokenizer itself puts one"


def _eos(recipe: Recipe, machine: Machine) -> tuple[str, str]:
    return "auto", f"{_NOT_IN_FILES}: an end token behind each document when the tokenizer has one"


def _export_dtype(recipe: Recipe, machine: Machine) -> tuple[str, str]:
    if recipe.model.preset is not None:
        return "fp32", "a new model is exported as it was trained"
    return "auto", "known when the model is loaded: the type that its weights came in"


_AUTOMATIC: dict[str, Callable[[Recipe, Machine], tuple[Any, str]]] = {
    "data.tokenizer": _tokenizer,
    "data.bos": _bos,
    "data.eos": _eos,
    "data.workers": _workers,
    "training.precision": _precision,
    "parallel.data_parallel_size": _data_parallel,
    "target.processes_per_node": _processes_per_node,
    "parallel.zero1": _zero1,
    "training.micro_batch_size": _micro_batch,
    "evaluation.micro_batch_size": _evaluation_micro_batch,
    "export.dtype": _export_dtype,
}
"""Field that may be `auto` -> what it becomes. The order counts: later ones read earlier ones' results."""


def _get(section: Section, path: str) -> Any:
    value: Any = section
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _replace(section: Any, names: list[str], value: Any) -> Any:
    """A copy of frozen sections with one value changed."""
    first, *rest = names
    return section.model_copy(
        update={first: _replace(getattr(section, first), rest, value) if rest else value}
    )
