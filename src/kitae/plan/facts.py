"""What a plan says: its assumptions in lines, and all of it for machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from kitae.plan.efficiency import efficiency_of
from kitae.plan.estimate import Estimate
from kitae.plan.money import per_million_tokens
from kitae.plan.phases import (
    COMPILE_S,
    CREATE_S,
    HIDDEN_SAVE,
    IDLE_TAIL_S,
    SAVE_BYTES_PER_S,
    START_S,
    TEARDOWN_S,
    TEXT_BYTES_PER_S,
    WARM_UP_S,
    Phase,
    save_bytes,
    span,
)
from kitae.plan.verdict import COMPILER_BYTES, COMPILES, HOST_BYTES, PROGRAM_BYTES, Verdict


def assumptions(found: Estimate) -> Iterator[str]:
    """What the numbers rest on, a line each."""
    work, machine = found.phases[0].work, found.machine
    yield from _speed(found) if machine.local is None else machine.local.assumptions(work)
    if work.backend == "xla" and work.is_decoder:
        yield _ATTENTION[work.scores]
    if not work.has_ring:
        yield (
            f"{work.tensor_parallel} processes share a copy; a Trainium1 has rings of 2, 8 and 32: these are "
            "taken to be as fast, and may not run"
        )
    yield "activations: closed form, within a tenth on CPUs; compiled programs may hold more or less"
    yield _beside_tensors(work.backend, rented=machine.instance is not None)
    if machine.instance is not None:
        compile_min = COMPILE_S[work.backend] / 60
        start_min = (START_S[work.backend] + WARM_UP_S[work.backend]) / 60
        yield (
            f"compiling takes {compile_min:g} min, starting {start_min:g} min, and nodes stay "
            f"{IDLE_TAIL_S / 60:g} min after the end; no waiting for nodes"
        )
        yield _failing(found)
        yield _saving(found)
        yield _prepared(found)
        if found.rent.head is not None:
            yield (
                f"the cluster is made in {CREATE_S / 60:g} min and taken down in {TEARDOWN_S / 60:g} min, "
                "without nodes"
            )


_ATTENTION = {
    "fused": "attention is the SDK's kernel, which is taken to be there",
    "kept": (
        "attention keeps its probabilities, as the SDK's kernel does not fit or gives something up: it wants "
        "rows of a multiple of 2048 tokens, bf16, no window, and training.attention=kernel or "
        "data.document_mask=false"
    ),
    "again": "attention computes its probabilities again in the backward pass",
}


def _speed(found: Estimate) -> Iterator[str]:
    """Of products, where nothing was measured but them."""
    work, peak = found.phases[0].work, found.machine.peak[found.peak_dtype]
    reached = efficiency_of(work)
    yield (
        f"products reach {reached.products:.0%} of {peak / 1e12:.3g} TFLOP/s ({found.peak_dtype} peak of a "
        f"process): {reached.basis}; the interval is a factor of {1 + reached.spread:g} either way"
    )
    if work.backend == "cpu":
        yield "bf16 on a CPU is taken to be three times as slow as fp32"
        yield "this machine is not calibrated with this torch: kitae calibrate makes the interval narrower"


def _beside_tensors(backend: str, *, rented: bool) -> str:
    """Memory that is no tensor's."""
    text = f"code and runtime take {PROGRAM_BYTES[backend] / 1e9:g} GB of a process"
    if not rented:
        return text
    text += f", and {HOST_BYTES / 1e9:g} GB of its host beside its weights"
    if backend not in COMPILES:
        return text
    return f"{text}; the compiler takes {COMPILER_BYTES / 1e9:g} GB of a host"


def _saving(found: Estimate) -> str:
    """Of checkpoints."""
    speed = f"checkpoints are written at {SAVE_BYTES_PER_S / 1e9:g} GB/s"
    if not all(phase.saves_beside for phase in found.phases):
        return f"{speed}, and the training waits"
    return f"{speed} beside the training, which waits a {HIDDEN_SAVE:.0f}th of it"


def _failing(found: Estimate) -> str:
    """Of nodes."""
    if found.mtbf_hours == float("inf"):
        return "no node fails; --mtbf-hours counts failures"
    every = span(found.mtbf_hours * 3600 / found.machine.nodes)
    return f"a node fails every {found.mtbf_hours:,.0f} h, and one of all every {every}"


def _prepared(found: Estimate) -> str:
    """Of the text."""
    if found.text_bytes is None:
        return "the text is not here: its preparation is not counted"
    if not found.text_bytes:
        return "the text is prepared"
    return f"one node prepares {found.text_bytes:,} bytes of text at {TEXT_BYTES_PER_S / 1e6:g} MB/s a core"


def as_json(found: Estimate, *notes: str) -> dict[str, Any]:
    """All of it, for machines; `notes` come before the assumptions.

    Bytes, seconds and US dollars; money as text, in decimals.
    """
    memory = found.verdict
    return {
        "machine": {
            "name": found.machine.name,
            "nodes": found.machine.nodes,
            "devices": found.machine.devices,
        },
        "verdict": memory.word,
        "sentence": found.sentence,
        "memory": _memory(memory),
        "phases": [_phase_json(phase) for phase in found.phases],
        "steps": found.steps,
        "tokens": found.tokens,
        "train_s": found.train_s(),
        "train_s_interval": None if found.steps is None else [found.train_s(0), found.train_s(1)],
        "utilisation": found.utilisation,
        "hours": found.hours,
        "cost": _cost(found),
        "assumptions": [*notes, *assumptions(found)],
    }


def _memory(verdict: Verdict) -> dict[str, Any]:
    memory = verdict.memory
    return {
        "state": memory.state,
        "kept_activations": memory.kept,
        "loss": memory.loss,
        "backward": memory.backward,
        "embedding": memory.embedding,
        "update": memory.update,
        "buckets": memory.buckets,
        "peak": memory.peak,
        "device_used": verdict.device_used,
        "device_bytes": verdict.device_bytes,
        "host_used": verdict.host_used,
        "host_bytes": verdict.host_bytes,
        "changes": list(verdict.changes),
    }


def _phase_json(phase: Phase) -> dict[str, Any]:
    time = phase.time
    parts: Mapping[str, float] = {
        **{f"products.{kind}": seconds for kind, seconds in time.products.items()},
        "weights": time.weights,
        "dropout": time.dropout,
        "tensor_parallel": time.tensor_parallel,
        "copies": time.copies,
        "optimizer": time.optimizer,
        "idle": time.idle,
        "host": time.host,
    }
    return {
        "name": phase.name,
        "steps": phase.steps,
        "step_s": time.seconds,
        "step_s_interval": list(time.interval),
        "parts_s": dict(parts),
        "saves": phase.saves,
        "save_s": phase.save_s,
        "save_bytes": save_bytes(phase.work),
        "start_s": START_S[phase.work.backend],
        "evaluations": phase.looks,
        "evaluate_s": phase.evaluate_s,
        "micro_batches": phase.work.micro_batches,
        "tokens_per_day": phase.tokens_per_day,
    }


def _cost(found: Estimate) -> dict[str, Any] | None:
    if found.bill is None:
        return None
    total = found.bill.total
    per = per_million_tokens(total, found.tokens) if total is not None and found.tokens else None
    return {
        "lines": [{"item": one.item, "how": one.how, "usd": _text(one.usd)} for one in found.bill.lines],
        "usd": _text(total),
        "usd_per_million_tokens": _text(per),
    }


def _text(usd: Decimal | None) -> str | None:
    return None if usd is None else str(usd)
