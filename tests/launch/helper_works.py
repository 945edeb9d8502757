"""What the helper of the tests does: it says its words, and waits for the end of its input."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    """Leave a file that says that it is here, and one once its input has ended."""
    settings = json.loads(sys.stdin.readline())
    folder = Path(settings["folder"])
    for word in settings.get("words", []):
        print(word, flush=True)
    (folder / "here.part").write_text(json.dumps({**settings, "pid": os.getpid()}))
    (folder / "here.part").rename(folder / "here")
    sys.stdin.read()
    if settings.get("stays"):
        time.sleep(60)
    (folder / "ended").touch()
