"""Runs with all that can be exported, at a moment of their own, and what a scrape then finds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from recorded_runs import BEGUN_S, attempt, write_run

from kitae.watch.alarms import Alarm
from kitae.watch.exporter.collector import RunCollector
from kitae.watch.exporter.serve import text_of
from kitae.watch.samples import CoreSample, DeviceSample, HostSample, ProcessSample, Sample, lines_file

NOW = BEGUN_S + 1800
GIB = 1 << 30

Found = dict[tuple[str, frozenset[tuple[str, str]]], float]


def sample(node: str = "trn-1", cores: int = 2, time: float = NOW - 3, **values: object) -> Sample:
    """One machine with chips of two cores; core n is n percent busy."""
    given = {
        "period_s": 5.0,
        "source": "neuron-monitor",
        "host": HostSample(0.25, 100 * GIB, 512 * GIB, 0, 700 * GIB, 1000 * GIB),
        "cores": tuple(CoreSample(n, n / 100 % 1, 10 * GIB, 16 * GIB, 2e13) for n in range(cores)),
        "devices": tuple(DeviceSample(n, "Trainium", n, 0, 60.5, 380.0) for n in range((cores + 1) // 2)),
        "processes": (ProcessSample(77, "rank 0", 1.5, 9 * GIB, (0, 1)),),
        "errors": {"hardware": 1, "numerical": 0},
    }
    return Sample(time=time, node=node, **{**given, **values})


def write_samples(run: Path, *samples: Sample) -> None:
    for one in samples:
        path = lines_file(run, one.node)
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(one.as_json()) + "\n")


def update(step: int, **values: object) -> dict[str, object]:
    """Two seconds, 1,000 positions of which 800 hold text, on two devices."""
    return {
        "kind": "train",
        "step": step,
        "loss": 3.0 - step / 10,
        "learning_rate": 1e-4,
        "grad_norm": 1.5,
        "step_seconds": 2.0,
        "first_step": step == 1,
        "padded_tokens": 1000,
        "real_tokens": 800,
        "total_padded_tokens": 1000 * step,
        "total_real_tokens": 800 * step,
        "peak_memory_bytes": 5 * GIB,
        "tokens_per_s_per_device": 250.0,
        "utilisation": 0.375,
        **values,
    }


def full_run(path: Path, host: str = "far") -> Path:
    """A run at work elsewhere that tells everything: four of ten updates, two nodes for $20 an hour."""
    write_run(path, [attempt(host=host, nodes=["trn-1", "trn-2"], price_per_node_hour=10.0)])
    slow = {"kind": "ranks", "step": 4, "compute_seconds": [1.0, 1.9], "nodes": ["trn-1", "trn-2"]}
    start = {"kind": "start", "step": 0, "steps": 10, "precision": "bf16-sr", "backend": "xla"}
    held = [
        {"kind": "evaluation", "step": 2, "loss": 2.5, "phase": "short"},
        {"kind": "evaluation", "step": 2, "loss": 2.75, "phase": "long"},
        {"kind": "evaluation", "step": 4, "loss": 2.25, "phase": "long"},
    ]
    lines = [start, *map(update, (1, 2, 3)), *held, update(4), {**slow, "slow": [{"rank": 1, "ratio": 1.9}]}]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (path / "recipe.yaml").write_text(
        "objective: causal-lm\nmodel: {preset: llama-10m, hub: null}\nwatch: {alarms: {budget_usd: 100}}\n"
    )
    for step in (2, 4):
        folder = path / "checkpoints" / f"step-{step:08d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "manifest.json").write_text("{}")
        os.utime(folder / "manifest.json", (BEGUN_S + 100 * step,) * 2)
    write_alarms(path, Alarm("slow-rank", "warning", "rank 1", NOW - 60, "trn-2"))
    write_samples(path, sample(), sample("trn-2", time=NOW - 4))
    for file in path.rglob("*"):
        if "manifest" not in file.name:
            os.utime(file, (NOW - 5, NOW - 5))
    return path


def write_alarms(run: Path, *alarms: Alarm) -> None:
    (run / "alarms.json").write_text(json.dumps({"alarms": [one.as_json() for one in alarms]}))


def collector(
    *runs: Path, find: Callable[[], Sequence[Path]] | None = None, tell: Callable[[str], None] = print
) -> RunCollector:
    return RunCollector(find or (lambda: runs), tell, now=lambda: NOW)


def scraped(given: RunCollector) -> Found:
    """What the text says, by name and labels; each is there once."""
    found: Found = {}
    for family in parse_text(text_of(given).decode()):
        for one in family.samples:
            key = one.name, frozenset(one.labels.items())
            assert key not in found, key
            found[key] = one.value
    return found


def openmetrics_of(given: RunCollector) -> Found:
    """The same through OpenMetrics, whose parser is strict."""
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(given)
    families = list(parse_openmetrics(openmetrics.generate_latest(registry).decode()))
    return {
        (one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples
    }


def value(found: Found, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))
