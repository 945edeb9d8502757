"""What the folder of a run tells, as numbers; only the ends of its files are read."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from kitae.watch.alarms import Alarm, all_alarms
from kitae.watch.exporter.numbers import Numbers
from kitae.watch.facts import seconds_since_1970
from kitae.watch.outlook import outlook_of
from kitae.watch.reading import Columns
from kitae.watch.speed import LAST, speed_of
from kitae.watch.state import State
from kitae.watch.status import Status
from kitae.watch.tail import Record, first_record, last_records

_PHASES = 20
"""Newest evaluations among which each phase's newest is looked for."""
_TOKENS = {"padded": "total_padded_tokens", "real": "total_real_tokens"}


def numbers_of(status: Status, run: str, now: float) -> Numbers:
    """All of a run that is called `run`, at `now` (seconds since 1970)."""
    found, path = Numbers(), status.facts.path
    found.add("kitae_run_readable", 1, run)
    found.add("kitae_run_info", 1, run, str(path), *_info(status))
    for state in get_args(State):
        found.add("kitae_run_state", state == status.state, run, state)
    _add_run(found, status, run, now)
    _add_training(found, status, run)
    _add_ranks(found, path, run)
    _add_checkpoints(found, path / "checkpoints", run)
    _add_alarms(found, all_alarms(path), run)
    return found


def _info(status: Status) -> list[str]:
    """The labels of `kitae_run_info` behind the path; empty for what nothing tells."""
    path, start = status.facts.path, first_record(status.facts.path / "metrics.jsonl")
    recipe = _recipe(path)
    model = recipe.get("model")
    named = (
        [str(value) for value in model.values() if isinstance(value, str)] if isinstance(model, dict) else []
    )
    newest = status.facts.newest or {}
    told = (
        *(next(iter(named), None), recipe.get("objective"), start.get("precision"), start.get("backend")),
        *(_version(path), newest.get("host")),
    )
    return ["" if one is None else str(one) for one in told]


def _recipe(run: Path) -> Mapping[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with suppress(OSError, ValueError, yaml.YAMLError):
        values = yaml.load((run / "recipe.yaml").read_text(encoding="utf-8"), loader)
        return values if isinstance(values, dict) else {}
    return {}


def _version(run: Path) -> str | None:
    from kitae.stages.files import read_json

    version = read_json(run / "run.json").get("kitae")
    return None if version is None else str(version)


def _add_run(found: Numbers, status: Status, run: str, now: float) -> None:
    outlook, newest = outlook_of(status, now), status.facts.newest
    values = {
        "attempts_total": len(status.facts.attempts),
        "nodes": status.node_count,
        "started_timestamp_seconds": None if newest is None else seconds_since_1970(newest["started"]),
        "last_sign_timestamp_seconds": status.facts.last_sign,
        "remaining_seconds": outlook.seconds_left,
        "cost_usd": outlook.cost_usd,
        "cost_usd_per_hour": outlook.price_per_hour,
        "cost_end_usd": outlook.cost_end_usd,
        "budget_usd": outlook.budget_usd,
    }
    for name, value in values.items():
        found.add(f"kitae_run_{name}", value, run)


def _add_training(found: Numbers, status: Status, run: str) -> None:
    metrics = status.facts.path / "metrics.jsonl"
    updates = last_records(metrics, "train", LAST)
    last: Record = updates[-1] if updates else {}
    values = {
        "step": last.get("step"),
        "steps": status.progress.steps,
        "loss": last.get("loss"),
        "learning_rate": last.get("learning_rate"),
        "gradient_norm": last.get("grad_norm"),
        "peak_memory_bytes": last.get("peak_memory_bytes"),
    }
    for name, value in values.items():
        found.add(f"kitae_training_{name}", value, run)
    for kind, name in _TOKENS.items():
        found.add("kitae_training_tokens_total", last.get(name), run, kind)
    for record in last_records(metrics, "evaluation", _PHASES):
        found.add("kitae_training_heldout_loss", record.get("loss"), run, record.get("phase") or "")
    if status.state == "running":
        _add_speed(found, updates, run)


def _add_speed(found: Numbers, updates: list[Record], run: str) -> None:
    """What is only so while it runs."""
    columns = Columns()
    for record in updates:
        columns.add(record)
    speed = speed_of(columns)
    found.add("kitae_training_tokens_per_second", speed.tokens_per_s, run, "padded")
    found.add("kitae_training_tokens_per_second", speed.real_tokens_per_s, run, "real")
    found.add("kitae_training_device_tokens_per_second", speed.tokens_per_s_per_device, run)
    found.add("kitae_training_step_seconds", speed.step_seconds, run)
    found.add("kitae_training_utilisation_ratio", speed.utilisation, run)


def _add_ranks(found: Numbers, path: Path, run: str) -> None:
    for record in last_records(path / "metrics.jsonl", "ranks", 1):
        slow = {one["rank"] for one in record["slow"]}
        ranks = zip(record["nodes"], record["compute_seconds"], strict=True)
        for rank, (node, seconds) in enumerate(ranks):
            found.add("kitae_training_rank_compute_seconds", seconds, run, rank, node)
            found.add("kitae_training_rank_slow", rank in slow, run, rank, node)


def _add_checkpoints(found: Numbers, folder: Path, run: str) -> None:
    saves = sorted(folder.glob("step-*/manifest.json"))
    found.add("kitae_checkpoints", len(saves), run)
    if saves:
        found.add("kitae_checkpoint_step", int(saves[-1].parent.name.removeprefix("step-")), run)
        found.add("kitae_checkpoint_timestamp_seconds", saves[-1].stat().st_mtime, run)


def _add_alarms(found: Numbers, alarms: list[Alarm], run: str) -> None:
    active = [alarm for alarm in alarms if alarm.until is None]
    for name in sorted({*RULE_NAMES, *(alarm.name for alarm in alarms)}):
        found.add("kitae_alarm_active", sum(alarm.name == name for alarm in active), run, name)
    for alarm in active:
        labels = (run, alarm.name, alarm.level, alarm.node or "")
        found.add("kitae_alarm_since_timestamp_seconds", alarm.since, *labels)


RULE_NAMES = (
    *("idle-while-paid", "non-finite-loss", "rising-loss"),
    *("slow-rank", "disk-nearly-full", "budget-at-80-percent"),
)
