"""Folders of runs as kitae leaves them, in the form of recorded ones, without anything that trained."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

BEGUN = "2026-11-30T19:00:00+00:00"
BEGUN_S = 1_796_065_200.0
"""The same in seconds since 1970."""


def attempt(outcome: str = "running", **values: object) -> dict[str, object]:
    """An entry of run.json: begun at `BEGUN`, ended an hour later unless it runs."""
    ended = None if outcome == "running" else "2026-11-30T20:00:00+00:00"
    return {"started": BEGUN, "pid": 4242, "host": "here", "ended": ended, "outcome": outcome, **values}


def update(step: int, seconds: float = 2.0, **values: object) -> dict[str, object]:
    """A line of metrics.jsonl: 1,000 tokens, in two seconds unless it is said otherwise."""
    record = {"kind": "train", "step": step, "loss": 3.0 - step / 10, "step_seconds": seconds}
    return {**record, "first_step": step == 1, "padded_tokens": 1000, **values}


def write_run(
    path: Path,
    attempts: Sequence[dict[str, object]] = (),
    *,
    steps: int = 0,
    of: int = 10,
    jobs: Sequence[tuple[str, int]] = (),
    signed: float = BEGUN_S + 60,
) -> Path:
    """The folder of a run of `of` steps, of which `steps` are done; its files changed last at `signed`."""
    (path / "logs").mkdir(parents=True, exist_ok=True)
    (path / "run.json").write_text(json.dumps({"kitae": "0.1.0", "attempts": list(attempts), "stages": {}}))
    if steps:
        lines = [{"kind": "start", "step": 0, "steps": of, "attempt": 1}, update(1, 9.0)]
        lines += [update(step) for step in range(2, steps + 1)]
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if jobs:
        listed = [{"stage": stage, "number": number} for stage, number in jobs]
        (path / "slurm.json").write_text(json.dumps({"jobs": listed}))
    for file in path.rglob("*"):
        os.utime(file, (signed, signed))
    return path


def write_log(path: Path, rank: int, *lines: str) -> Path:
    """The log of a rank."""
    log = path / "logs" / f"rank-{rank}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(f"{line}\n" for line in lines))
    return log
