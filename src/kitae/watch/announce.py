"""Tells a command and a webhook of the user's about alarms; both may be slow or fail without harm."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kitae.watch.alarm_book import Change
from kitae.watch.alarms import Alarm

COMMAND_S, WEBHOOK_S = 30.0, 10.0
"""How long each may take."""
TRIES, BETWEEN_S = 3, 2.0
"""How often a webhook is tried that does not answer, or answers that it is busy."""
_EVENTS = {"began": "alarm", "worse": "alarm, worse now", "ended": "alarm over"}
_HEADERS = {"Content-Type": "application/json", "User-Agent": "kitae"}


@dataclass(frozen=True)
class Listener:
    """Somebody who is told."""

    what: str
    """As the recipe calls it."""
    tell: Callable[[Mapping[str, Any]], None]
    """Raises OSError, ValueError or `subprocess.SubprocessError` where that fails."""


class Announcer:
    """Tells listeners one after the other, in a thread of its own; the same failure is noted once."""

    def __init__(self, listeners: Sequence[Listener], note: Callable[[str], None]) -> None:
        self._listeners, self._note = listeners, note
        self._queue: queue.Queue[Mapping[str, Any] | None] = queue.Queue(maxsize=100)
        self._failed: set[str] = set()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def tell(self, run: str, changes: Sequence[Change]) -> None:
        """All changes of one look, in one message; too many that wait are dropped."""
        if changes and self._listeners:
            with suppress(queue.Full):
                self._queue.put_nowait(message(run, changes))

    def finish(self, within_s: float) -> None:
        """Wait until all are told, but no longer than this."""
        with suppress(queue.Full):
            self._queue.put(None, timeout=within_s)
        self._thread.join(within_s)

    def _work(self) -> None:
        while (one := self._queue.get()) is not None:
            for listener in self._listeners:
                self._tell(listener, one)

    def _tell(self, listener: Listener, told: Mapping[str, Any]) -> None:
        try:
            listener.tell(told)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            if listener.what not in self._failed:
                self._failed.add(listener.what)
                self._note(
                    f"{listener.what} could not be told of an alarm: {error}; it is tried at the next one"
                )


class Quiet:
    """Keeps an alarm that ends and begins from being told again and again."""

    def __init__(self, again_s: float, before: Sequence[Alarm] = ()) -> None:
        """`before` are alarms of attempts before."""
        self._again_s = again_s
        self._told = {one.key: one.since for one in before}
        self._silent: set[tuple[str, str | None]] = set()

    def is_told(self, change: Change) -> bool:
        """Whether to tell of this change: of an end as of its beginning, of what gets worse always."""
        key, alarm = change.alarm.key, change.alarm
        if change.event == "began":
            last = self._told.get(key)
            if last is not None and alarm.since - last < self._again_s:
                self._silent.add(key)
                return False
            self._told[key] = alarm.since
        if change.event == "worse":
            self._silent.discard(key)
        told = key not in self._silent
        self._silent.discard(key)
        return told


def listeners_of(settings: Mapping[str, Any], environment: Mapping[str, str]) -> list[Listener]:
    """Of the section `watch.alarms`."""
    command, webhook = settings.get("command"), settings.get("webhook")
    found = []
    if command:
        found.append(Listener("watch.alarms.command", lambda told: run_command(str(command), told)))
    if webhook:
        address = environment.get(webhook[1:], "") if webhook.startswith("$") else webhook
        found.append(Listener("watch.alarms.webhook", lambda told: post(address, told)))
    return found


def message(run: str, changes: Sequence[Change]) -> dict[str, Any]:
    """What is told: for programs, and in `text` and `content`, which Slack and Discord show, for people."""
    text = "\n".join(f"{_EVENTS[one.event]} in {run}: {line(one.alarm)}" for one in changes)
    events = [one.event for one in changes]
    return {
        "run": run,
        "event": next(event for event in ("worse", "began", "ended") if event in events),
        "alarms": [{"event": one.event, **one.alarm.as_json()} for one in changes],
        "text": text,
        "content": text[:2000],
    }


def line(alarm: Alarm) -> str:
    """An alarm for a person."""
    where = "" if alarm.node is None else f" on {alarm.node}"
    return f"{alarm.name} ({alarm.level}){where}: {alarm.what}"


def run_command(command: str, told: Mapping[str, Any]) -> None:
    """Run a shell command, with its children ended where it takes too long."""
    names = ",".join(dict.fromkeys(one["name"] for one in told["alarms"]))
    critical = any(one["level"] == "critical" for one in told["alarms"])
    process = subprocess.Popen(
        command,
        shell=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={
            **os.environ,
            "KITAE_ALARM_EVENT": told["event"],
            "KITAE_ALARM_NAMES": names,
            "KITAE_ALARM_LEVEL": "critical" if critical else "warning",
            "KITAE_ALARM_TEXT": told["text"],
        },
    )
    try:
        process.communicate(json.dumps(told).encode(), COMMAND_S)
    except subprocess.TimeoutExpired:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise ValueError(f"it took longer than {COMMAND_S:.0f} s and was ended") from None
    if process.returncode:
        raise ValueError(f"it ended with code {process.returncode}")


def post(address: str, told: Mapping[str, Any]) -> None:
    """POST the message; a server that is busy or away is tried again."""
    if not address:
        raise ValueError("the variable that holds its address is not set")
    request = urllib.request.Request(address, json.dumps(told).encode(), _HEADERS, method="POST")
    for rest in reversed(range(TRIES)):
        try:
            with urllib.request.urlopen(request, timeout=WEBHOOK_S):
                return
        except OSError as error:
            code = getattr(error, "code", None)
            if rest == 0 or (code is not None and code < 500 and code != 429):
                raise
            time.sleep(BETWEEN_S)
