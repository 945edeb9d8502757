"""What `run.json` tells of every attempt of a job: where it ran, why it ended, how many steps were lost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kitae.errors import StorageError
from kitae.launch.slurm.allocation import Allocation
from kitae.launch.slurm.commands import Slurm
from kitae.launch.slurm.decide import Move, Record
from kitae.launch.slurm.money import cost_usd

if TYPE_CHECKING:
    from kitae.stages.job import Job
    from kitae.stages.run_folder import RunFolder


def attempt_folder(run: Path, number: int) -> Path:
    """Where the nodes of an attempt leave their words."""
    return run / "attempts" / f"{number:04d}"


class Attempts:
    """The attempts of a run, of which those of one job count."""

    def __init__(self, run: Path, here: Allocation) -> None:
        from kitae.stages.run_folder import RunFolder

        self._path, self._here = run, here
        self._folder = RunFolder(run)

    def begin(self, job: Job, names: Sequence[str]) -> None:
        """The attempt that is to begin runs on these nodes."""
        self._folder = job.run
        job.run.facts = {
            "job": self._here.job,
            "restart": self._here.restart,
            "nodes": list(names),
            "price_per_node_hour": job.recipe.target.price_per_node_hour,
            "from_step": _saved_step(self._path / "checkpoints"),
        }

    def record(self) -> Record:
        """What happened in this job so far."""
        self._last().update(_lost(self._path))
        mine = [one for one in self._folder.state["attempts"] if one.get("job") == self._here.job]
        failed = [one for one in mine if one["outcome"] in ("failed", "killed") or _for_nothing(one)]
        return Record(len(failed), Counter(one["failed_on"] for one in failed if one.get("failed_on")))

    def failed_on(self, node: str) -> None:
        """Where the attempt that has ended failed; empty when nobody knows."""
        self._last().update({"failed_on": node} if node else {})

    def note(self, move: Move) -> None:
        """What follows from the attempt that has ended."""
        last = self._last()
        if last:
            last.update(why=move.why, then=move.action, **_lost(self._path), **_cost(last))
            _write(self._folder)

    def _last(self) -> dict[str, Any]:
        """The record of the newest attempt of this job."""
        found: list[dict[str, Any]] = self._folder.state["attempts"]
        return found[-1] if found and found[-1].get("job") == self._here.job else {}

    def close_lost(self, slurm: Slurm) -> str:
        """Say what can be told of an attempt before that ended with its node; empty where it ended well."""
        from kitae.stages.run_folder import now

        folder = self._folder
        last = folder.state["attempts"][-1] if folder.attempts else {}
        if last.get("outcome") != "running" or last.get("job") != self._here.job:
            return ""
        bad = {name: str(node) for name, node in slurm.nodes(last["nodes"]).items() if node.bad}
        where = ", ".join(f"{name} is {state}" for name, state in bad.items())
        why = f"ended from outside{': ' + where if where else '; all of its nodes are well'}"
        last.update(outcome="killed", ended=now(), why=why, then="requeue")
        last.update(**_lost(self._path), **_cost(last))
        if len(bad) == 1:
            last["failed_on"] = next(iter(bad))
        _write(folder)
        return f"attempt {folder.attempts} {why}; {last['steps_lost']} steps are repeated"


def _for_nothing(attempt: dict[str, Any]) -> bool:
    """Whether it was stopped before a further step was saved, as a time limit that is too short does."""
    saved, begun = int(attempt.get("saved_step", 0)), int(attempt.get("from_step", 0))
    return attempt["outcome"] == "stopped" and saved <= begun


def _write(folder: RunFolder) -> None:
    try:
        folder.write()
    except StorageError:
        return  # the disk is full: what ended the attempt says so


def _lost(run: Path) -> dict[str, int]:
    """The last step that was trained, the newest that was saved, and what lies between."""
    trained, saved = _last_step(run / "metrics.jsonl"), _saved_step(run / "checkpoints")
    return {"step": trained, "saved_step": saved, "steps_lost": max(0, trained - saved)}


def _last_step(metrics: Path) -> int:
    try:
        with metrics.open("rb") as file:
            file.seek(max(0, metrics.stat().st_size - 65536))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return 0
    for line in reversed(lines):
        try:
            record: dict[str, Any] = json.loads(line)
        except ValueError:  # cut off, by us or by a kill
            continue
        if record.get("kind") == "train":
            return int(record["step"])
    return 0


def _saved_step(checkpoints: Path) -> int:
    names = (one.name.removeprefix("step-") for one in checkpoints.glob("step-*"))
    return max((int(name) for name in names if name.isdecimal()), default=0)


def _cost(attempt: dict[str, Any]) -> dict[str, float | None]:
    """What its nodes cost, from its beginning to its end."""
    begun, ended = (datetime.fromisoformat(attempt[name]) for name in ("started", "ended"))
    price = attempt.get("price_per_node_hour")
    return {"cost_usd": cost_usd(len(attempt["nodes"]), (ended - begun).total_seconds(), price)}
