"""A verb of kitae on a head node with this terminal: what is typed goes there, and its screen comes here."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kitae.errors import ClusterError
from kitae.launch.ssh.following import run_there
from kitae.launch.ssh.link import Link
from kitae.launch.ssh.remote import read_remote

_DROPPED, _NOT_FOUND = 255, 127
_PASSED = ("COLORTERM", "COLORFGBG", "NO_COLOR")
"""What a screen goes by and ssh does not take along."""


def with_run(run: Path, words: Sequence[str], terminal: bool) -> int:
    """`kitae WORDS` where a run is, with the kitae that runs it; RUN stands for its folder there."""
    if not terminal:
        return run_there(run, words)
    remote = read_remote(run)
    own = [remote.run if word == "RUN" else word for word in words]
    given = {**remote.variables, **_passed(), "PYTHONUTF8": "1"}
    variables = [f"{name}={value}" for name, value in given.items() if value]
    command = ["env", *variables, remote.python, "-m", "kitae", *own]
    return _called(remote.host, f"cd {shlex.quote(remote.folder)} && exec {shlex.join(command)}", True)


def on_host(host: str, words: Sequence[str], terminal: bool) -> int:
    """`kitae WORDS` on a host where it is on PATH. Raises `ClusterError` where it is not."""
    variables = [f"{name}={value}" for name, value in _passed().items()]
    code = _called(host, f"exec {shlex.join(['env', *variables, 'kitae', *words])}", terminal)
    if code == _NOT_FOUND:
        raise ClusterError(
            f"there is no kitae on {host}: submit a run there from the folder that you are in (target.kind: "
            "ssh), which brings it, or install it there"
        )
    return code


def _passed() -> dict[str, str]:
    return {name: os.environ[name] for name in _PASSED if name in os.environ}


def _called(host: str, script: str, terminal: bool) -> int:
    """Of a login shell there, which knows where Slurm's programs are."""
    quoted = shlex.quote(script)
    shell = f"command -v bash >/dev/null 2>&1 && exec bash -lc {quoted}; exec sh -lc {quoted}"
    link = Link(host)
    # After the -T of the link, -t counts.
    words = [*link.ssh, *(["-t"] if terminal else []), host, f"sh -c {shlex.quote(shell)}"]
    try:
        done = subprocess.run(
            words, stderr=None if terminal else subprocess.PIPE, text=True, errors="replace"
        )
    except FileNotFoundError:
        raise ClusterError("there is no program ssh here; install OpenSSH's client") from None
    if done.returncode == _DROPPED:
        raise link.unreachable(done.stderr or "")
    if done.stderr:
        sys.stderr.write(done.stderr)
    return done.returncode
