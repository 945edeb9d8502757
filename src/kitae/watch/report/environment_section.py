"""Where a training ran: versions, machines, topology; and what it measured itself by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kitae.watch.report.blocks import Block, Table, Words
from kitae.watch.report.figures import number
from kitae.watch.report.run_view import RunView

_HOSTS = 16
_STARTED = (
    ("backend", "backend"),
    ("precision", "precision"),
    ("devices", "devices, one a process"),
    ("data_parallel_size", "copies of the model"),
    ("tensor_parallel_size", "processes that share a copy"),
    ("sequence_parallel", "sequence parallel"),
    ("zero1", "ZeRO-1"),
    ("threads", "threads of each process"),
    ("attention", "attention"),
)
_LEARNED = (
    ("objective", "objective"),
    ("seed", "seed"),
    ("optimizer", "optimizer"),
    ("learning_rate", "peak of the learning rate"),
    ("global_batch_size", "rows of an update"),
    ("micro_batch_size", "rows of a micro-batch"),
    ("accumulation_steps", "micro-batches of an update, each copy"),
    ("sequence_length", "tokens of a row"),
)
_KEYS = (("recipe_hash", "key of the training"), ("data_key", "key of the data"))


def environment(view: RunView) -> Iterator[Block]:
    """Tables of all that is known."""
    rows = [*_versions(view), *_machine(view)]
    if rows:
        yield Table("where it ran", ("", "value"), tuple(rows), frozenset({0, 1}))
    learned = [
        (words, _plain(view.results[name])) for name, words in (*_LEARNED, *_KEYS) if name in view.results
    ]
    model = view.results.get("model")
    if isinstance(model, dict):
        learned += [(f"model: {name.replace('_', ' ')}", _plain(value)) for name, value in model.items()]
    if learned:
        yield Table("what was trained", ("", "value"), tuple(learned), frozenset({0, 1}))
    if view.start.get("utilisation_formula"):
        yield Words(f"Utilisation is {view.start['utilisation_formula']}.")


def _versions(view: RunView) -> Iterator[tuple[str, str]]:
    versions: dict[str, Any] = {"kitae": view.state.get("kitae"), **(view.results.get("versions") or {})}
    if view.proof.get("transformers"):
        versions["transformers"] = view.proof["transformers"]
    yield from ((name, str(version)) for name, version in versions.items() if version)


def _machine(view: RunView) -> Iterator[tuple[str, str]]:
    hosts = dict.fromkeys(
        str(name)
        for one in view.attempts
        for name in (one.get("nodes") or [one.get("host")])
        if name is not None
    )
    if hosts:
        names = list(hosts)
        more = f" and {len(names) - _HOSTS} more" if len(names) > _HOSTS else ""
        yield "machines", ", ".join(names[:_HOSTS]) + more
    planned = (view.plan.get("estimate") or {}).get("machine") or {}
    if planned.get("name"):
        yield "planned for", f"{number(planned.get('nodes'))} x {planned['name']}"
    yield from ((words, _plain(view.start[name])) for name, words in _STARTED if name in view.start)
    peak = view.start.get("peak_flops")
    if peak:
        yield "peak of one device", f"{peak / 1e12:.4g} TFLOP/s"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, int) else str(value)
