"""Folders of runs with everything that `kitae top` shows, in the form of recorded ones."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

from recorded_runs import BEGUN, BEGUN_S, attempt, write_log, write_run

from kitae.watch.samples import CoreSample, DeviceSample, HostSample, ProcessSample, Sample, lines_file

GIB = 1 << 30


def update(step: int, seconds: float = 2.0, devices: int = 64) -> dict[str, object]:
    """A line of metrics as the recorder writes it."""
    tokens = 1_048_576
    return {
        "kind": "train",
        "step": step,
        "loss": round(2.0 + 9.0 * math.exp(-step / 60) + 0.1 * math.sin(step), 4),
        "learning_rate": 3e-4 * min(1.0, step / 100),
        "grad_norm": 1.0 + 5 / step,
        "step_seconds": seconds,
        "first_step": step == 1,
        "padded_tokens": tokens,
        "real_tokens": tokens * 9 // 10,
        "target_tokens": tokens * 9 // 10,
        "rows": 128,
        "total_padded_tokens": tokens * step,
        "total_real_tokens": tokens * 9 // 10 * step,
        "consumed_samples": 128 * step,
        "tokens_per_s": tokens / seconds,
        "real_tokens_per_s": 0.9 * tokens / seconds,
        "tokens_per_s_per_device": tokens / seconds / devices,
        "real_tokens_per_s_per_device": 0.9 * tokens / seconds / devices,
        "utilisation": 0.314,
        "peak_memory_bytes": 12 * GIB,
    }


def evaluation(step: int) -> dict[str, object]:
    return {"kind": "evaluation", "step": step, "loss": 2.2 + 9.0 * math.exp(-step / 60), "seconds": 3.0}


def of_ranks(step: int, count: int, slow: int | None, per_node: int = 32) -> dict[str, object]:
    seconds = [1.8 + 0.01 * (rank % 7) for rank in range(count)]
    found = []
    if slow is not None:
        seconds[slow] = 2.9
        found = [{"rank": slow, "ratio": 1.59}]
    nodes = [f"queue1-st-trn1-{1 + rank // per_node}" for rank in range(count)]
    return {"kind": "ranks", "step": step, "compute_seconds": seconds, "nodes": nodes, "slow": found}


def start(step: int, steps: int, devices: int, number: int = 1) -> dict[str, object]:
    return {
        "kind": "start",
        "step": step,
        "steps": steps,
        "attempt": number,
        "time": BEGUN,
        "backend": "xla",
        "devices": devices,
        "precision": "bf16-sr",
    }


def sample(
    node: str, cores: int = 32, devices: int = 16, time: float = BEGUN_S + 600, busy: float = 0.9
) -> Sample:
    """A machine of which core 5 is idle, and the others are busy."""
    return Sample(
        time=time,
        period_s=5.0,
        source="neuron-monitor" if devices else "host",
        node=node,
        host=HostSample(0.12, 180 * GIB, 512 * GIB, 0, 700 * GIB, 1024 * GIB),
        cores=tuple(
            CoreSample(
                index,
                0.0 if index == 5 else busy - 0.02 * (index % 5),
                int(11.2 * GIB) if devices else None,
                16 * GIB if devices else None,
                6.2e13 if devices else None,
            )
            for index in range(cores)
        ),
        devices=tuple(DeviceSample(index, "trn1", 3 if index == 2 else 0, 0) for index in range(devices)),
        processes=(ProcessSample(4242, "rank 0", 1.2, 6 * GIB, tuple(range(min(4, cores)))),),
        errors={"hardware": 0, "generic": 2} if node.endswith("2") else {},
    )


def write_samples(run: Path, *samples: Sample) -> None:
    for one in samples:
        path = lines_file(run, one.node)
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(one.as_json()) + "\n")


def append(run: Path, *records: dict[str, object]) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write("".join(json.dumps(one) + "\n" for one in records))


def write_checkpoint(run: Path, step: int, size: int = 4_000_000) -> None:
    folder = run / "checkpoints" / f"step-{step:08d}"
    folder.mkdir(parents=True)
    (folder / "part-0.safetensors").write_bytes(b"\0" * size)
    os.utime(folder / "part-0.safetensors", (BEGUN_S + 2 * step, BEGUN_S + 2 * step))
    with (run / "saves.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "seconds": 1.5, "time": BEGUN_S + 2 * step}) + "\n")


def write_training(
    run: Path, *, steps: int = 300, of: int = 3000, nodes: int = 2, cores: int = 32, outcome: str = "running"
) -> Path:
    """A run on nodes with 16 devices each, in its second attempt, one rank of which is slow."""
    names = [f"queue1-st-trn1-{number}" for number in range(1, nodes + 1)]
    price = {"price_per_node_hour": 21.5, "nodes": names}
    write_run(run, [attempt("killed", **price), attempt(outcome, **price)])
    (run / "recipe.yaml").write_text("watch: {alarms: {budget_usd: 100}}")
    devices = nodes * cores
    append(run, start(0, of, devices), *(update(step, devices=devices) for step in range(1, steps // 2)))
    append(run, evaluation(steps // 2), start(steps // 2, of, devices, 2))
    append(run, *(update(step, devices=devices) for step in range(steps // 2, steps + 1)))
    append(run, evaluation(steps), of_ranks(steps, devices, 7, cores))
    write_samples(run, *(sample(name, cores, busy=0.9 - 0.1 * at) for at, name in enumerate(names)))
    write_log(
        run,
        0,
        "---- attempt 2",
        f"step {steps}/{of}  loss 2.1",
        "\x1b[31m学習しています\x1b[0m",
        "12 %\r40 %",
    )
    write_log(run, 1, "rank 1 says nothing")
    write_checkpoint(run, steps // 2)
    write_checkpoint(run, steps)
    alarm = {"name": "slow-rank", "level": "warning", "what": "rank 7 computes 1.59 x as long as the others"}
    idle = {"name": "idle-while-paid", "level": "critical", "what": "1 of 32 cores idle for 10 minutes"}
    both = [{**alarm, "since": BEGUN_S + 500}, {**idle, "since": BEGUN_S, "node": names[0]}]
    (run / "alarms.json").write_text(json.dumps({"alarms": both}))
    for file in run.rglob("*"):
        os.utime(file, (BEGUN_S + 600, BEGUN_S + 600))
    return run
