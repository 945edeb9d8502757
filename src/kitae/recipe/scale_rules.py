"""The rules of `--scale-down cpu`. Where, how many, how long; `scale_inputs` says what is read."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from kitae.recipe.base import Duration
from kitae.recipe.scale_down import Scaling
from kitae.recipe.scale_inputs import labels, model, own_values, texts
from kitae.recipe.schema import Recipe, phase_recipes

SUFFIX = "-small"
RANKS = 8
"""More processes than these are too many for a laptop."""
TENSOR, COPIES = 4, 2
LENGTH = 128
STEPS, EPOCHS = 12, 10
ROWS, ACCUMULATION = 4, 2
HELDOUT_ROWS, NEW_TOKENS = 64, 16
_NAME = 100


def _divisor(number: int, most: int) -> int:
    return next(size for size in range(min(number, most), 0, -1) if number % size == 0)


def ranks(recipe: Recipe) -> tuple[int, int]:
    """Processes that share a copy of the model, and copies, of the small recipe."""
    tensor, copies = recipe.parallel.tensor_parallel_size, recipe.parallel.data_parallel_size
    if copies == "auto":
        copies = COPIES if _has_copies(recipe) else 1
    if tensor * copies <= RANKS:
        return tensor, copies
    return _divisor(tensor, TENSOR), min(copies, COPIES)


def _has_copies(recipe: Recipe) -> bool:
    """Whether an automatic number of copies is more than one on its own machines."""
    target = recipe.target
    return (
        target.most > 1
        or target.backend not in ("auto", "cpu")
        or target.processes_per_node not in ("auto", 1)
    )


def length(recipe: Recipe, tokens: int) -> int:
    """Small length of rows of so many tokens: the longest are `LENGTH`, others in proportion."""
    longest = max(phase.data.sequence_length for _, phase in phase_recipes(recipe))
    if longest <= LENGTH:
        return tokens
    short = max(16, tokens * LENGTH // longest)
    return short - short % ranks(recipe)[0]


def _name(small: Scaling) -> None:
    name = small.recipe.name
    if not name.endswith(SUFFIX):
        small.change("name", name, f"{name[: _NAME - len(SUFFIX)]}{SUFFIX}", "a run of its own")


def _target(small: Scaling) -> None:
    target = small.recipe.target
    if target.kind == "local" and target.backend in ("auto", "cpu"):
        return
    nodes = f", {target.most} nodes" if target.most > 1 else ""
    here = {"kind": "local", "backend": "cpu"}
    small.change("target", f"{target.kind}, {target.backend}{nodes}", here, "this machine")


def _parallel(small: Scaling) -> None:
    parallel = small.recipe.parallel
    tensor, copies = ranks(small.recipe)
    most = f"more than {RANKS} processes are too many here"
    small.change("parallel.tensor_parallel_size", parallel.tensor_parallel_size, tensor, most)
    before = parallel.data_parallel_size
    if before != "auto" or copies > 1:
        why = most if before != "auto" else "as several devices would have"
        small.change("parallel.data_parallel_size", before, copies, why)


def _lengths(small: Scaling) -> None:
    for path, recipe in own_values(small.recipe, "data", ("sequence_length",)):
        tokens = recipe.data.sequence_length
        why = f"the longest rows get {LENGTH} tokens, others in proportion"
        small.change(f"{path}data.sequence_length", tokens, length(small.recipe, tokens), why)


def _batches(small: Scaling) -> None:
    fields = ("global_batch_size", "micro_batch_size")
    for path, recipe in own_values(small.recipe, "training", fields):
        training = recipe.training
        micro, rows = batch(recipe)
        if training.micro_batch_size != "auto":
            why = f"at most {ROWS} rows at a time"
            small.change(f"{path}training.micro_batch_size", training.micro_batch_size, micro, why)
        why = f"at most {ROWS} rows at a time, {ACCUMULATION} times, for each copy"
        small.change(f"{path}training.global_batch_size", training.global_batch_size, rows, why)


def batch(recipe: Recipe) -> tuple[int, int]:
    """Rows at a time, and of an update as the recipe counts them, of the small recipe or phase."""
    training, parallel = recipe.training, recipe.parallel
    copies = ranks(recipe)[1] if parallel.keep_global_batch else 1
    before = parallel.data_parallel_size if parallel.keep_global_batch else 1
    own = max(1, training.global_batch_size // (copies if before == "auto" else before))
    if training.micro_batch_size == "auto":
        micro = _divisor(own, ROWS)
        return micro, micro * min(own // micro, ACCUMULATION) * copies
    micro = _divisor(training.micro_batch_size, ROWS)
    times = max(1, own // training.micro_batch_size)
    return micro, micro * min(times, ACCUMULATION) * copies


def _durations(small: Scaling) -> None:
    for path, recipe in own_values(small.recipe, "training", ("duration",)):
        before = recipe.training.duration
        after = duration(recipe)
        small.change(f"{path}training.duration", str(before), str(after), _lasting(after))
    for path, recipe in own_values(small.recipe, "schedule", ("warmup",)):
        before = recipe.schedule.warmup
        after = in_proportion(before, recipe.training.duration, duration(recipe))
        small.change(f"{path}schedule.warmup", str(before), str(after), "the same share of the training")


def _lasting(after: Duration) -> str:
    return f"at most {EPOCHS} epochs of few rows" if after.unit == "epochs" else f"at most {STEPS} updates"


def duration(recipe: Recipe) -> Duration:
    """How long the small recipe trains. Epochs of labelled texts are of few texts; others may be long."""
    before = recipe.training.duration
    if before.unit == "epochs" and recipe.objective == "classification":
        return Duration(min(before.value, EPOCHS), "epochs")
    if before.unit == "steps":
        return Duration(min(before.value, STEPS), "steps")
    return Duration(STEPS, "steps")


def in_proportion(part: Duration, whole: Duration, small: Duration) -> Duration:
    """As large a share of the small duration as `part` is of the whole; one update where not known."""
    if part.value == 0 or small == whole:
        return part
    if part.unit != whole.unit or small.unit != whole.unit:
        return Duration(1, "steps")
    share = small.value * part.value / whole.value
    return Duration(max(1, round(share)), "steps") if part.unit == "steps" else Duration(share, part.unit)


def _intervals(small: Scaling) -> None:
    recipe = small.recipe
    shortest = min((duration(phase) for _, phase in phase_recipes(recipe)), key=lambda one: one.value)
    half = Duration(max(1, ceil(shortest.value / 2)), shortest.unit)
    for path, every in (
        ("evaluation.every", recipe.evaluation.every),
        ("checkpoint.every", recipe.checkpoint.every),
    ):
        if isinstance(every, Duration) and (every.unit != half.unit or every.value > half.value):
            small.change(path, str(every), str(half), "half of the shortest phase")


def _looks(small: Scaling) -> None:
    recipe = small.recipe
    most = recipe.evaluation.max_rows
    if recipe.data.heldout is not None and (most is None or most > HELDOUT_ROWS):
        small.change("evaluation.max_rows", most, HELDOUT_ROWS, "few rows are looked at")
    if recipe.sample is not None:
        tokens = recipe.sample.max_new_tokens
        small.change("sample.max_new_tokens", tokens, min(tokens, NEW_TOKENS), "a short text")


def _data(small: Scaling) -> None:
    texts(small, lambda tokens: length(small.recipe, tokens))


def _model(small: Scaling) -> None:
    model(small, ranks(small.recipe)[0])


RULES: tuple[Callable[[Scaling], None], ...] = (
    _name,
    _model,
    _data,
    labels,
    _lengths,
    _durations,
    _batches,
    _parallel,
    _intervals,
    _looks,
    _target,
)
"""In the order in which their changes are shown."""
