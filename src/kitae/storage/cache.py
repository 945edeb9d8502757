"""Where kitae keeps what can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where content-addressed data and models lie: `$KITAE_CACHE`, else `~/.cache/kitae`."""
    given = os.environ.get("KITAE_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given).absolute() if given else base / "kitae"
