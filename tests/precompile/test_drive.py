"""neuron_parallel_compile as a program: how it is called, what is said of it, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from kitae.errors import PrecompileError
from kitae.precompile import drive
from kitae.precompile.drive import Compiling, Tool, compile_collected, find_tool, run_logged


@pytest.fixture
def tool(tmp_path: Path):
    """Makes a tool of a shell script; it writes down how it was called."""
    said: list[str] = []

    def make(script: str, **asked: object) -> tuple[Tool, list[str], Path]:
        program, called = tmp_path / "tool", tmp_path / "called"
        program.write_text(f'#!/bin/sh\necho "$NEURON_CC_FLAGS|$@" >> {called}\n{script}\n')
        program.chmod(0o755)
        variables = {"PATH": os.environ["PATH"], "NEURON_CC_FLAGS": "--target=trn1"}
        return Tool(str(program), variables, said.append, Compiling(**asked)), said, called  # type: ignore[arg-type]

    return make


def test_jobs_retries_and_the_command_are_passed(tool, tmp_path: Path):
    made, _, called = tool(
        'echo "$NEURON_PARALLEL_COMPILE_MAX_RETRIES $NEURON_PARALLEL_COMPILE_DUMP_RESULTS"', jobs=3, retries=2
    )
    run = compile_collected(made, ["train", "it"], tmp_path / "logs/x.log")
    assert called.read_text() == "--target=trn1|--num_parallel 3 --command compile train it\n"
    assert (tmp_path / "logs/x.log").read_text() == "2 1\n"
    assert (run.code, run.summary, run.out_of_memory) == (0, None, False)


def test_failed_graphs_are_tried_again_only_when_asked(tool, tmp_path: Path):
    made, _, called = tool("true", jobs=1, retry_failed=True)
    compile_collected(made, [], tmp_path / "x.log")
    assert called.read_text().startswith("--target=trn1 --retry_failed_compilation|")


def test_without_a_number_memory_decides_and_is_told(tool, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(drive, "available_bytes", lambda: 30 << 30)
    monkeypatch.setattr(drive, "processors", lambda: 8)
    made, said, called = tool("true")
    compile_collected(made, [], tmp_path / "x.log", graphs=9)
    assert "--num_parallel 3 " in called.read_text()
    assert said[:1] == [
        "precompile: compiling 3 graphs at a time (30 GiB of memory and 8 processors bear so many)"
    ]


def test_a_summary_that_cannot_be_read_is_told_with_what_is_counted(tool, tmp_path: Path):
    text = "INFO ||NEURON_PARALLEL_COMPILE||: Total graphs: 19\\nTotal failed compilations: 0"
    made, said, _ = tool(f"printf '{text}'", jobs=1)
    compile_collected(made, [], tmp_path / "x.log")
    assert said[1:] == [
        "precompile: the tool's summary cannot be read; it counts 19 graphs, 0 failed compilations"
    ]


@pytest.mark.parametrize("ending", ["exit 137", "kill -9 $$", "echo 'Received error code: -9'"])
def test_memory_that_ran_out_halves_the_jobs_once(tool, tmp_path: Path, ending: str):
    made, said, called = tool(ending, jobs=4)
    run = compile_collected(made, [], tmp_path / "x.log")
    assert [line.split("|")[1].split()[1] for line in called.read_text().splitlines()] == ["4", "2"]
    assert run.out_of_memory
    assert any("with 2 graphs at a time instead of 4" in line for line in said)


def test_one_at_a_time_cannot_be_halved(tool, tmp_path: Path):
    made, said, called = tool("exit 137", jobs=1)
    compile_collected(made, [], tmp_path / "x.log")
    assert len(called.read_text().splitlines()) == 1
    assert any("one graph at a time: it needs more" in line for line in said)


def test_progress_is_told_when_it_changes_and_waiting_once(tool, tmp_path: Path):
    counts = "Current remaining items are 1, locked are 0, failed are {}, done are {}, total is 3"
    wait = "Another process must be compiling /x/MODULE_1+a/model.hlo_module.pb, been waiting for: 1 min"
    lines = [counts.format(0, 1), counts.format(0, 1), wait, wait, counts.format(1, 2)]
    (tmp_path / "words").write_text("\n".join(lines) + "\n")
    made, said, _ = tool(f"cat {tmp_path}/words", jobs=1)
    compile_collected(made, [], tmp_path / "x.log")
    assert said[1:] == [
        "precompile: 1 of 3 graphs in the cache are compiled",
        "precompile: waiting for MODULE_1+a, which another process has locked",
        "precompile: 2 of 3 graphs in the cache are compiled, 1 failed",
        "precompile: the tool's summary cannot be read; it counts nothing",
    ]


def test_a_tool_that_is_not_there(tmp_path: Path):
    with pytest.raises(PrecompileError, match="neuron_parallel_compile is not on PATH"):
        find_tool({"PATH": str(tmp_path)})


def test_what_was_started_ends_with_the_process_that_started_it(tmp_path: Path):
    """Also what the tool has started: compilers would go on for hours."""
    script = "import sys; from pathlib import Path; from kitae.precompile.drive import run_logged; "
    script += "from kitae.stages.termination import terminable\n"
    script += "with terminable():\n run_logged(['sh', '-c', 'sleep 600 & echo $!; wait'], Path(sys.argv[1]))"
    log = tmp_path / "x.log"
    environment = {**os.environ, "PYTHONPATH": str(Path(drive.__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(log)], env=environment, stderr=subprocess.PIPE
    )
    end = time.monotonic() + 60
    while not (log.exists() and log.read_text().strip()):
        assert time.monotonic() < end, "it did not begin"
        time.sleep(0.05)
    child = int(log.read_text())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_log_on_a_full_disk_is_told(tmp_path: Path, mount_small):
    from kitae.errors import StorageError

    folder = mount_small(tmp_path / "small", 8)
    with pytest.raises(StorageError):
        run_logged(["sh", "-c", "head -c 100000 /dev/zero"], folder / "x.log")
