"""Programs of a machine that are asked, and given up when they hang."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

NEURON_PROGRAMS = Path("/opt/aws/neuron/bin")
EFA_PROGRAMS = Path("/opt/amazon/efa/bin")
PATIENCE_S = 10.0
"""How long a program may take: those of a broken driver hang for ever."""


@dataclass(frozen=True)
class Answer:
    """What a program said."""

    text: str | None
    """Its output; None where there is none."""
    trouble: str = ""
    """Why not, for a person."""


def ask(program: str, *words: str, folders: Sequence[Path] = (), patience_s: float | None = None) -> Answer:
    """The output of a program, found on PATH or in `folders`. Never raises, never waits longer."""
    found = shutil.which(program) or next(
        (str(one / program) for one in folders if os.access(one / program, os.X_OK)), None
    )
    if found is None:
        return Answer(None, f"{program} not found")
    return _run([found, *words], program, PATIENCE_S if patience_s is None else patience_s)


def _run(command: Sequence[str], name: str, patience_s: float) -> Answer:
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return Answer(None, f"{name} cannot be started: {error.strerror}")
    try:
        out, wrong = process.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        _end(process)
        return Answer(None, f"{name} gave no answer in {patience_s:g} s: the driver may hang")
    text, said = (one.decode("utf-8", "replace").strip() for one in (out, wrong))
    if process.returncode != 0:
        last = (said or text).splitlines()[-1:] or ["without a word"]
        return Answer(None, f"{name} failed ({process.returncode}): {last[0]}")
    return Answer(text)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program and what it started; one that the kernel holds is left behind."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=1)
