"""The process that watches a training: what it is told, and where what it says goes."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from kitae.launch.helper import Helper, helped
from kitae.stages.job import Job

MODULE = "kitae.watch.sampler"
KEPT = 200
"""Alarms in run.json."""


def sampler_of(job: Job, **settings: Any) -> Helper | None:
    """What takes samples of a machine of this training; None where the recipe wants none."""
    watch = job.recipe.watch
    common = {"run": str(job.run.path), "backend": job.backend, "period_s": watch.period_s}
    return Helper(MODULE, {**common, **settings}) if watch.record else None


@contextmanager
def watched(job: Job) -> Iterator[None]:
    """Watch a training in this process, or in ranks that it starts, here or on the nodes of a batch job.

    Nodes of a batch job take their samples themselves: see `launch.node`.
    """
    node = socket.gethostname() if job.machines is None else None
    alarms = job.recipe.watch.alarms.model_dump(mode="json")
    with helped(sampler_of(job, node=node, alarms=alarms), AlarmLog(job).hear):
        yield


class AlarmLog:
    """Writes alarms into the run's log and its run.json."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def hear(self, line: str) -> None:
        """Take a line of the sampler."""
        said = json.loads(line)
        if "note" in said:
            self._job.report(f"watch: {said['note']}")
            return
        alarm = said["alarm"]
        if said["aloud"]:
            where = "" if alarm["node"] is None else f" on {alarm['node']}"
            what = "alarm over" if said["event"] == "ended" else "alarm"
            self._job.report(f"{what}: {alarm['name']} ({alarm['level']}){where}: {alarm['what']}")
        self._record(alarm)

    def _record(self, alarm: dict[str, Any]) -> None:
        """In place of what is known of it already; the process of the training writes nothing meanwhile."""
        state = self._job.run.state
        entry = {
            "attempt": self._job.run.attempts,
            **{name: alarm[name] for name in ("name", "level", "node", "what")},
            "began": _text(alarm["since"]),
            "ended": _text(alarm["until"]),
        }
        same = ("name", "node", "began")
        others = [
            one
            for one in state.get("alarms", [])
            if [one.get(key) for key in same] != [entry[key] for key in same]
        ]
        state["alarms"] = [*others, entry][-KEPT:]
        self._job.run.write()


def _text(seconds: float | None) -> str | None:
    """As times stand in run.json."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")
