"""Weights & Biases: a run of a project, online or in the run's folder."""

from __future__ import annotations

import netrc
import os
import secrets
import string
from collections.abc import Sequence
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from kitae.train.tracking.follower import CLOSE_S
from kitae.train.tracking.interface import Outcome, Point, TrackedRun

_SETTINGS = {
    # The training's output is not its business, and metadata hold command lines, and addresses with logins.
    "console": "off",
    "silent": True,
    "disable_git": True,
    "save_code": False,
    "x_disable_meta": True,
    "x_save_requirements": False,
    "finish_timeout": CLOSE_S - 5,
}
_LETTERS = string.ascii_lowercase + string.digits
_CLOUD = ("api.wandb.ai", "api.forge.coreweave.com")
"""Hosts of its public server, which versions call differently."""
_WITH_KEYS = ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE")


def place_of(run: TrackedRun) -> str:
    """Where the project is."""
    server = os.environ.get("WANDB_BASE_URL")
    return "/".join(filter(None, (server, run.config.wandb.entity, run.config.project)))


def has_login(server: str) -> bool:
    """Whether there is a key for a server: where there is none, wandb would ask the terminal for one."""
    if any(os.environ.get(name) for name in _WITH_KEYS):
        return True
    host = urlsplit(server).netloc
    try:
        known = netrc.netrc(os.environ.get("NETRC"))
    except (OSError, netrc.NetrcParseError):
        return False
    return any(known.authenticators(one) for one in (_CLOUD if host in _CLOUD else (host,)))


class WandbRun:
    """It sends from a process of its own."""

    def __init__(self, run: TrackedRun, known: str | None) -> None:
        self._wandb = import_module("wandb")
        self.id = known or "".join(secrets.choice(_LETTERS) for _ in range(8))
        asked = run.config.wandb.mode
        mode = os.environ.get("WANDB_MODE", "online") if asked == "auto" else asked
        if mode != "online":
            self._run, why = self._init(run, mode), f"{mode}, as asked"
        elif not has_login(self._wandb.setup().settings.base_url):
            self._run, why = self._init(run, "offline"), "offline, as there is no login (wandb login)"
        else:
            self._run, why = self._online(run)
        files = run.folder / "wandb" / "offline-run-*"
        self.shown = f"{why}; to send it: wandb sync --id {self.id} {files}" if why else self._run.url

    def _online(self, run: TrackedRun) -> tuple[Any, str]:
        """A run that is sent at once, or, where nobody answers, one that is kept, and why."""
        try:
            return self._init(run, "online"), ""
        except self._wandb.errors.CommError as error:
            self._wandb.teardown()
            return self._init(run, "offline"), f"offline, as its server does not answer ({error})"

    def _init(self, run: TrackedRun, mode: str) -> Any:
        known = self._wandb.Settings.model_fields
        return self._wandb.init(
            project=run.config.project,
            entity=run.config.wandb.entity,
            name=run.name,
            id=self.id,
            resume="allow",
            dir=str(run.folder),
            config=dict(run.recipe),
            tags=run.config.tags,
            mode=mode,
            settings=self._wandb.Settings(**{k: v for k, v in _SETTINGS.items() if k in known}),
        )

    def send(self, points: Sequence[Point]) -> None:
        """Hand the points to its process."""
        for point in points:
            self._run.log(dict(point.values), step=point.step)

    def close(self, outcome: Outcome) -> None:
        """Wait until its process has sent them, and say how it ended."""
        self._run.finish(exit_code=int(outcome == "failed"))
