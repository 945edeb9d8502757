"""Tokens of the Hub: from this process' environment, over ssh's standard input, to jobs, and nowhere else.

They lie there in a file that only the user can read; each job's script reads it, and it goes with the last
job.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

NAMES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def tokens_text(environment: Mapping[str, str] = os.environ) -> str:
    """Lines that a shell reads; empty without tokens."""
    found = {name: environment[name] for name in NAMES if environment.get(name)}
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in found.items())


def setup_line(path: str) -> str:
    """The line of a job's script that reads them, where they are."""
    return f"if [ -r {shlex.quote(path)} ]; then . {shlex.quote(path)}; fi"
