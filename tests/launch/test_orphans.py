"""A process whose parent is killed ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kitae

CHILD = """
import os, sys, time
from kitae.launch import orphans
if {thread}:
    orphans._kernel_promises = lambda: False
    orphans._LOOK_S = 0.01
orphans.die_with({parent})
print("lives", flush=True)
time.sleep(60)
"""
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {child}.replace("PARENT", str(__import__("os").getpid()))])
child.wait()
"""


def run(code: str) -> subprocess.Popen[str]:
    source = str(Path(kitae.__file__).parents[1])
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r})\n{code}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("thread", [False, True], ids=["kernel", "thread"])
def test_a_child_ends_with_its_parent(thread: bool):
    source = str(Path(kitae.__file__).parents[1])
    child = f"import sys; sys.path.insert(0, {source!r})\n" + CHILD.format(thread=thread, parent="PARENT")
    with run(PARENT.format(child=repr(child))) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "lives\n"
        parent.kill()
        assert parent.stdout.read() == ""  # its end: the child, too, has closed the pipe


def test_a_child_of_a_parent_that_is_gone_already_ends_at_once():
    with run(CHILD.format(thread=False, parent=1)) as child:
        assert child.stdout is not None
        assert child.stdout.read() == ""
    assert child.returncode == -9


def test_a_command_ends_with_what_started_it(tmp_path: Path):
    """Whatever program it is; nothing of its variables or words changes."""
    shell = 'echo "$1 $PYTHONSTARTUP"; exec sleep 60'
    command = f"[*orphans.bound(), 'sh', '-c', {shell!r}, 'sh', 'a  b']"
    variables = "{**os.environ, 'PYTHONSTARTUP': 'x'}"
    code = (
        f"import os, subprocess\nfrom kitae.launch import orphans\nsubprocess.run({command}, env={variables})"
    )
    with run(code) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "a  b x\n"
        parent.kill()
        assert parent.stdout.read() == ""


def test_a_command_of_a_parent_that_is_gone_is_not_begun():
    with run(
        "import os, sys\nfrom kitae.launch import orphans\n*words, pid = orphans.bound()\n"
        "os.execv(words[0], [*words, '1', 'echo', 'begun'])"
    ) as child:
        assert child.stdout is not None
        assert child.stdout.read() == ""
