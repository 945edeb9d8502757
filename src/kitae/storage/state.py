"""Where kitae keeps what it has learned of this machine: of use to later runs, and not to be made again."""

from __future__ import annotations

import os
from pathlib import Path

from kitae.storage.cache import cache_folder

_USUAL_CACHE = Path(".cache") / "kitae"


def state_folder() -> Path:
    """`$KITAE_STATE`, else `state/` in a cache that is elsewhere than usual, else `~/.local/state/kitae`.

    Jobs of a cluster name the usual cache, too, and share what is learned with everything else.
    """
    given = os.environ.get("KITAE_STATE")
    if given:
        return Path(given).absolute()
    cache = cache_folder()
    if cache != Path.home() / _USUAL_CACHE:
        return cache / "state"
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "kitae"
