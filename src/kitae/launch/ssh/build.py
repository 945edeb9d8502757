"""Makes an environment on the head node: `python build.py ORDER`, run there by its own Python.

It imports the standard library alone. ORDER is a file of JSON: `key`, `wheel`, `pins`, `extras`, and `own`:
whether the packages of the Python that runs it are used. An environment is usable when its file `complete` is
there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Order = dict[str, Any]

STORAGE, CLUSTER = 7, 8
"""Exit codes of kitae for what a disk and what a cluster lacks."""
WAY_OUT = "mend it there, or set target.python to an interpreter there that has what kitae needs"

# Said by an interpreter that has kitae's metadata beside its own packages.
_CHECK = """
import importlib.metadata as metadata, sys
try:
    from packaging.requirements import Requirement
except ImportError:
    sys.exit("packaging is not installed")
wrong = []
for text in metadata.requires("kitae") or ():
    need = Requirement(text)
    if need.marker is None or need.marker.evaluate({"extra": ""}):
        try:
            found = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            found = None
        if found is None or not need.specifier.contains(found, prereleases=True):
            wrong.append(f"{need.name}{need.specifier} ({found or 'not installed'})")
sys.exit("needed there: " + ", ".join(wrong) if wrong else 0)
"""


class BuildError(Exception):
    """It cannot be made; `code` is what to exit with."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def build(order: Order) -> None:
    """Make the environment, unless it is there."""
    final = Path("environments", order["key"]).absolute()
    if (final / "complete").exists():
        return
    shutil.rmtree(final, ignore_errors=True)
    final.mkdir(parents=True)
    (_beside if order["own"] else _venv)(final, str(Path(order["wheel"]).absolute()), order)
    (final / "complete").touch()


def _venv(final: Path, wheel: str, order: Order) -> None:
    """An environment of its own, with these versions."""
    python, pins = str(final / "venv/bin/python"), final / "pins.txt"
    pins.write_text(order["pins"])
    print("making a virtual environment", flush=True)
    _must(final, [sys.executable, "-m", "venv", str(final / "venv")])
    print("installing kitae and what it needs; this takes minutes", flush=True)
    options = ["--no-input", "--disable-pip-version-check", "--progress-bar=off", "--constraint", str(pins)]
    _must(final, [python, "-m", "pip", "install", *options, wheel + order["extras"]])


def _beside(final: Path, wheel: str, order: Order) -> None:
    """The wheel alone; the other packages are those of this interpreter."""
    packages = final / "packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    _must(final, [sys.executable, "-c", _CHECK], {**os.environ, "PYTHONPATH": str(packages)})
    # Else all processes of all nodes would compile it, at once.
    _must(final, [sys.executable, "-m", "compileall", "-q", str(packages)])


def _must(final: Path, words: Sequence[str], environment: dict[str, str] | None = None) -> None:
    """Run a program, its output in `log.txt`; its last words as a `BuildError` when it fails."""
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with (final / "log.txt").open("a", encoding="utf-8") as log:
        log.write(done.stdout)
    if done.returncode == 0:
        return
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    last = "; ".join(lines[-2:]) or f"code {done.returncode}"
    full = "No space left on device" in done.stdout or "Disk quota exceeded" in done.stdout
    raise BuildError(STORAGE if full else CLUSTER, f"the environment cannot be made there: {last}; {WAY_OUT}")


def main() -> int:
    """Do what is ordered; the exit code, with the error as the last line printed."""
    try:
        build(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    except BuildError as error:
        print(f"error: {error}", flush=True)
        return error.code
    except OSError as error:
        print(f"error: the environment cannot be made there: {error}; {WAY_OUT}", flush=True)
        return STORAGE
    return 0


if __name__ == "__main__":
    sys.exit(main())
