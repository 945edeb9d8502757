"""Trainings of tiny models that are traced, by name, and what is told of them; a program of its own.

`python traced_cases.py NAME:RANK ...` prints one JSON object: what each traced rank's programs hold.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import asdict
from typing import Any

SIZES = {"hidden_size": 32, "num_hidden_layers": 2}
LLAMA = {
    **SIZES,
    "model_type": "llama",
    "vocab_size": 98,
    "intermediate_size": 48,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
BERT = {
    **SIZES,
    "model_type": "bert",
    "vocab_size": 97,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
    "type_vocab_size": 2,
}
PRETRAINING = {**BERT, "architectures": ["BertForPreTraining"]}
CLASSIFIER = {**BERT, "architectures": ["BertForSequenceClassification"]}
EVEN = {**LLAMA, "vocab_size": 96}
"""Of which four replicas have equally many rows of every tensor."""


def _parallel(dp: int, tp: int, **more: Any) -> dict[str, Any]:
    return {"data_parallel_size": dp, "tensor_parallel_size": tp, "bucket_bytes": 4096, **more}


MLM = {"objective": "masked-lm", "training": {"precision": "fp32"}}
LABELS = {"objective": "classification", "data": {"labels": {"field": "label"}}}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "tp4": (LLAMA, _parallel(1, 4), {}),
    "dp4-zero1": (EVEN, _parallel(4, 1, zero1=True), {}),
    "dp4-zero1-uneven": (LLAMA, _parallel(4, 1, zero1=True), {}),
    "dp2-tp2": (EVEN, _parallel(2, 2), {}),
    "dp2-tp2-autocast": (EVEN, _parallel(2, 2), {"training": {"precision": "autocast"}}),
    "tp2-sp": (LLAMA, _parallel(1, 2, sequence_parallel=True), {"training": {"micro_batch_size": 16}}),
    "tp4-dp4-sp-zero1": (EVEN, _parallel(4, 4, sequence_parallel=True, zero1=True), {}),
    "dp4-bf16-wire": (LLAMA, _parallel(4, 1, zero1=False, reduce_dtype="bf16"), {}),
    "tp2-sp-recompute": (
        LLAMA,
        _parallel(1, 2, sequence_parallel=True),
        {"training": {"recompute": "full", "precision": "fp32"}},
    ),
    "bert-tp2": (PRETRAINING, _parallel(1, 2), MLM),
    "bert-tp2-dp2-lamb": (PRETRAINING, _parallel(2, 2, zero1=False), {**MLM, "optimizer": {"name": "lamb"}}),
    "bert-classifier-tp2-sp": (CLASSIFIER, _parallel(1, 2, sequence_parallel=True), LABELS),
    "alone": (LLAMA, _parallel(1, 1), {}),
}
"""Configuration, parallelism, and what else is another value."""
BASE: dict[str, Any] = {
    "kitae": 1,
    "name": "traced",
    "model": {"folder": "model"},
    "data": {"train": [{"path": "text"}], "sequence_length": 16},
    "training": {
        "duration": "10 steps",
        "global_batch_size": 16,
        "micro_batch_size": 1,
        "loss_chunk_tokens": 6,
        "precision": "bf16",
    },
}


def to_trace(name: str) -> Any:
    """A case, as `kitae.precompile.tracing` takes it."""
    from kitae.model.tables import parse_config
    from kitae.plan.work import work_of
    from kitae.precompile.tracing import ToTrace
    from kitae.recipe.resolve import resolve
    from kitae.recipe.schema import Recipe

    config, parallel, more = CASES[name]
    sections = {
        key: {**BASE.get(key, {}), **one} if isinstance(one, dict) else one for key, one in more.items()
    }
    recipe = resolve(Recipe.model_validate({**BASE, **sections, "parallel": parallel}), backend="xla").recipe
    parsed, tied = parse_config(config), config["model_type"] == "bert"
    return ToTrace(parsed, tied, [(None, recipe, work_of(recipe, parsed, tied, "xla"))])


def facts(name: str, rank: int) -> dict[str, Any]:
    """Of one rank."""
    from kitae.precompile.expected import expected_micro_batch
    from kitae.precompile.tracing import trace

    training = to_trace(name)
    (phase,) = trace(training, rank)
    return {
        "programs": [_program(one) for one in phase.programs],
        "uses": phase.uses,
        "update": _listed(phase.update),
        "expected": _listed(phase.expected),
        "micro_batch": _listed(expected_micro_batch(training.first)),
    }


def _program(program: Any) -> dict[str, Any]:
    return {"graph": program.graph, "key": program.key, "collectives": _listed(program.collectives)}


def _listed(collectives: Counter[Any]) -> list[dict[str, Any]]:
    return [{**asdict(one), "count": count} for one, count in sorted(collectives.items())]


def counted() -> list[str]:
    """Names of what torch-xla has counted and timed in this process."""
    import torch_xla.debug.metrics as met

    return [*met.counter_names(), *met.metric_names()]


if __name__ == "__main__":
    wanted = [one.split(":") for one in sys.argv[1:]]
    print(json.dumps({"facts": {f"{n}:{r}": facts(n, int(r)) for n, r in wanted}, "counted": counted()}))
    sys.stdout.flush()
    os._exit(0)
