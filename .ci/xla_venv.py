"""Make the environment of `make test-xla`, once, and print where it is.

torch-xla needs a torch of its own. It takes about 5 minutes and 7 GB, so it lies outside of the checkout, in
${XDG_CACHE_HOME:-~/.cache}/kitae, and is used again for as long as what it is made of stays the same.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[1]
OWN = ("torch==2.9.1", "torch-xla==2.9.0")
TESTS = ("pytest>=8", "pytest-xdist>=3.6", "hypothesis>=6.100")


def requirements() -> list[str]:
    """What is installed: kitae's own dependencies with another torch, and what tests need."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("\ndependencies = [")[2].partition("\n]")[0]
    lines = (line.strip().rstrip(",").strip('"') for line in section.splitlines())
    return [*OWN, *TESTS, *(line for line in lines if line and not line.startswith("torch>"))]


def constraints() -> str:
    """The versions that were tested together, but torch's; for Python 3.11 and newer, as in the Makefile."""
    if sys.version_info < (3, 11):
        return ""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return "".join(f"{line}\n" for line in lines if not line.startswith("torch=="))


def main() -> None:
    """Print the folder; what pip says goes to standard error."""
    wanted, pins = requirements(), constraints()
    made_of = "\n".join((sys.version, sysconfig.get_platform(), *wanted, pins))
    key = hashlib.sha256(made_of.encode()).hexdigest()[:16]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kitae"
    final = home / f"venv-xla-{key}"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "venv-xla.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another checkout may be making it
        if not final.is_dir():
            make(final, wanted, pins)
    print(final)


def make(final: Path, wanted: list[str], pins: str) -> None:
    """Install beside the final place, and rename when all of it is there."""
    parts = final.with_name(f"{final.name}.part")
    shutil.rmtree(parts, ignore_errors=True)
    (parts.with_suffix(".constraints")).write_text(pins, encoding="utf-8")
    pip = [str(parts / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([sys.executable, "-m", "venv", str(parts)])
    run([*pip, "--no-cache-dir", "--constraint", str(parts.with_suffix(".constraints")), *wanted])
    parts.with_suffix(".constraints").unlink()
    parts.rename(final)  # its programs name the old place; `bin/python -m` does not


def run(command: list[str]) -> None:
    """Run a program, or leave with its exit code."""
    code = subprocess.run(command, stdout=sys.stderr, check=False).returncode
    if code:
        sys.exit(f"{' '.join(command[:6])} ... failed with exit code {code}")


if __name__ == "__main__":
    main()
