"""Where kitae keeps what it has learned of this machine: of use to later runs, and not to be made again."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """`$KITAE_STATE`, else `state/` in `$KITAE_CACHE` where that is set, else `~/.local/state/kitae`."""
    given, cache = os.environ.get("KITAE_STATE"), os.environ.get("KITAE_CACHE")
    if given:
        return Path(given).absolute()
    if cache:
        return Path(cache).absolute() / "state"
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "kitae"
