"""A head node that is this machine: a stand-in for ssh on PATH, and stand-ins for Slurm's programs there."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

STANDIN = Path(__file__).with_name("standin_ssh.py")

_SBATCH = """#!/bin/sh
number=$(($(cat {folder}/number 2>/dev/null || echo 0) + 1))
echo $number > {folder}/number
for script; do :; done
echo "$number $*" >> {folder}/submitted
env > {folder}/environment-of-job
cp "$script" {folder}/script-$number
echo $number
"""
_SQUEUE = """#!/bin/sh
[ "$1" = --json ] && exit 1
for number in $(seq 1 $(cat {folder}/number 2>/dev/null || echo 0)); do
  state=PENDING
  [ -e {folder}/over ] && state=COMPLETED
  [ -e {folder}/state-$number ] && state=$(cat {folder}/state-$number)
  echo "$number|$state|None||1|||of a test"
done
"""
_SCONTROL = """#!/bin/sh
echo "JobId=$3 JobState=FAILED ExitCode=5:0 Restarts=0"
"""


@dataclass(frozen=True)
class HeadNode:
    """Called `head`."""

    folder: Path

    @property
    def work(self) -> Path:
        """What `target.folder` is to be; there are blanks in it."""
        return self.folder / "shared disk/kitae of me"

    @property
    def cluster(self) -> Path:
        """Where the stand-ins of Slurm's programs note what they were asked."""
        return self.folder / "cluster"

    def plan(self, *events: str) -> None:
        """What befalls the next connections, see `standin_ssh`; empty: nothing."""
        (self.folder / "plan").write_text("".join(f"{one}\n" for one in events))

    def calls(self) -> int:
        """How many connections there were."""
        return len((self.folder / "calls").read_text().splitlines())

    def program(self, name: str, text: str) -> None:
        """Put a program on the head node's PATH."""
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def profile(self, *lines: str) -> None:
        """Lines that a login shell reads there."""
        text = "".join(f"{line}\n" for line in (f"PATH='{self.folder}/bin':$PATH", *lines))
        (self.folder / "home/.profile").write_text(text)

    def end_jobs(self) -> None:
        """Let all jobs have worked."""
        (self.cluster / "over").touch()

    def submitted(self) -> list[str]:
        """Numbers and words of what was submitted."""
        path = self.cluster / "submitted"
        return path.read_text().splitlines() if path.exists() else []


def head_node(folder: Path, patch: pytest.MonkeyPatch) -> HeadNode:
    """Make it, and let this process' ssh lead there."""
    for name in ("bin", "home", "cluster", "client"):
        (folder / name).mkdir(parents=True)
    ssh = folder / "client/ssh"
    ssh.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {STANDIN} "$@"\n')
    ssh.chmod(0o755)
    head = HeadNode(folder)
    for name, text in (("sbatch", _SBATCH), ("squeue", _SQUEUE), ("scontrol", _SCONTROL)):
        head.program(name, text.replace("{folder}", f"'{head.cluster}'"))
    head.program("scancel", "#!/bin/sh\n")
    head.profile()
    path = os.environ["PATH"]
    patch.setenv("STANDIN", str(folder))
    patch.setenv("STANDIN_PATH", path)
    patch.setenv("PATH", f"{folder / 'client'}{os.pathsep}{path}")
    patch.delenv("KITAE_SSH_OPTIONS", raising=False)
    return head
