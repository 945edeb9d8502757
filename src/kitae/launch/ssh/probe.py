"""What a head node has: a folder to write to, a Python, Slurm, rsync; its shell is asked, once."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from kitae.errors import ClusterError, StorageError
from kitae.launch.ssh.link import Head, Link
from kitae.launch.ssh.there import MARK

OLDEST = (3, 10)
_NAMES = ("python3", *(f"python3.{minor}" for minor in range(14, 9, -1)))
_ROOMS = ("inputs", "code", "environments", "tasks", "recipes", "runs", "cache")
_KEPT = ("PATH", "SLURM_CONF", "LD_LIBRARY_PATH", "MODULEPATH")
"""Variables that a login shell sets and a command over ssh may lack."""
_VERSION = r"import sys; sys.stdout.write('%d %d %s' % (sys.version_info[:2] + (sys.executable,)))"

_SCRIPT = """
say() {{ printf '{mark}%s=%s\\n' "$1" "$2"; }}
folder={folder}
case $folder in '~') folder=$HOME ;; '~/'*) folder=$HOME/${{folder#'~/'}} ;; esac
said=$(mkdir -p "$folder" 2>&1) && cd "$folder" || {{ say refused "$folder: $said"; exit 0; }}
say folder "$(pwd -P)"
said=$( (printf kitae > ".write-$$") 2>&1) || {{ rm -f ".write-$$"; say refused "$folder: $said"; exit 0; }}
rm -f ".write-$$"
said=$(mkdir -p objects/incoming {rooms} 2>&1) || say refused "$said"
for python in {pythons}; do say python "$("$python" -c "{version}" 2>/dev/null)"; done
for program in sbatch rsync; do command -v "$program" >/dev/null 2>&1 && say "$program" yes; done
for name in {kept}; do eval "value=\\${{$name-}}"; [ -z "$value" ] || say "$name" "$value"; done
say done yes
"""


def look(link: Link, folder: str, python: str | None) -> tuple[Head, bool]:
    """A head node that can be worked on, and whether it has rsync. Raises `ClusterError` or `StorageError`.

    `python` is an interpreter there; None takes one like that which runs here, else the newest.
    """
    script = _SCRIPT.format(
        mark=MARK,
        folder=shlex.quote(folder),
        pythons=" ".join(map(shlex.quote, [python] if python else _NAMES)),
        version=_VERSION.replace('"', '\\"'),
        kept=" ".join(_KEPT),
        rooms=" ".join(_ROOMS),
    )
    facts = [line[len(MARK) :].partition("=")[::2] for line in link.shell(script) if line.startswith(MARK)]
    found = dict(facts)
    _check(link, found, folder)
    head = Head(
        link=link,
        python=_python([value for name, value in facts if name == "python" and value], link, python),
        folder=found["folder"],
        environment={name: found[name] for name in _KEPT if name in found},
    )
    return head, "rsync" in found


def _check(link: Link, found: dict[str, str], folder: str) -> None:
    host = link.host
    if "refused" in found:
        full = "No space" in found["refused"] or "quota" in found["refused"]
        way_out = "free some space there, or name" if full else "name"
        raise StorageError(
            f"target.folder: {host} cannot write there: {found['refused']}; {way_out} a folder that you may "
            "write to and that all nodes see"
        )
    if "done" not in found:
        raise ClusterError(
            f"target.host: the shell of {host} ended before it had answered; check what its start-up files "
            f"do (ssh {host} true)"
        )
    if "sbatch" not in found:
        raise ClusterError(
            f"target.host: there is no Slurm on {host}: a login shell there finds no program sbatch; name "
            "the cluster's head node, or add Slurm to PATH in ~/.profile there"
        )


def _python(found: Sequence[str], link: Link, wanted: str | None) -> str:
    """The path of the interpreter to use."""
    versions: dict[tuple[int, int], str] = {}
    for one in found:
        major, minor, path = one.split(" ", 2)
        versions.setdefault((int(major), int(minor)), path)
    fit = {version: path for version, path in versions.items() if version >= OLDEST}
    if not fit:
        newest = ", ".join(f"{major}.{minor}" for major, minor in versions) or "none"
        field = "target.python" if wanted else "target.host"
        raise ClusterError(
            f"{field}: no Python of 3.10 or newer on {link.host} ({wanted or 'python3'}: found {newest}); "
            "install one there, or name its path with target.python"
        )
    # A venv's interpreter is its link, not where that leads: sys.executable keeps it.
    return fit.get(sys.version_info[:2]) or fit[max(fit)]
