"""neuron_parallel_compile, run as the program that it is: watched, logged, and once more when memory ran out.

Graphs are collected and compiled by two calls (`--command collect`, `--command compile`), so that a
compilation that ran out of memory is repeated without a second trial run. Its exit code and its summary
decide nothing: older releases return 0 after failures. What is compiled is what the cache has.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from kitae.errors import PrecompileError
from kitae.precompile.compile_log import OUT_OF_MEMORY, CompileLog, Progress, read_log
from kitae.precompile.jobs import available_bytes, jobs_for, processors
from kitae.precompile.result import Summary, read_summary
from kitae.storage.disk import storage_errors

PROGRAM = "neuron_parallel_compile"
_RETRIES = "NEURON_PARALLEL_COMPILE_MAX_RETRIES"
_DUMP = "NEURON_PARALLEL_COMPILE_DUMP_RESULTS"
_FLAGS = "NEURON_CC_FLAGS"
RETRY_FAILED = "--retry_failed_compilation"
"""Read by the compiler's wrapper, which does not pass it on: no key changes by it."""
_PATIENCE_S = 10.0
_LINE_BYTES = 1 << 20
Report = Callable[[str], None]


@dataclass(frozen=True)
class Compiling:
    """What a person asks of a compilation."""

    jobs: int | None = None
    """Graphs at a time; None: as many as memory bears."""
    retries: int = 1
    """How often the tool tries a failed graph again, by itself."""
    retry_failed: bool = False
    """Whether graphs that failed in an earlier run are tried again."""

    def words(self) -> tuple[str, ...]:
        """What differs from the plain way, as words of a command line."""
        given = {name: value for name, value in asdict(self).items() if value != getattr(PLAIN, name)}
        return tuple(f"{name}={json.dumps(value)}" for name, value in given.items())

    @classmethod
    def of_words(cls, words: Sequence[str]) -> Compiling:
        """The same, back from `words`."""
        parts = (word.partition("=") for word in words)
        return cls(**{name: json.loads(value) for name, _, value in parts})


PLAIN = Compiling()


@dataclass(frozen=True)
class Tool:
    """The program, and how it is to work."""

    program: str
    environment: Mapping[str, str]
    report: Report
    asked: Compiling = PLAIN
    starter: Sequence[str] = ()
    """Words in front of the program."""


@dataclass(frozen=True)
class ToolRun:
    """How one call ended."""

    code: int
    log: CompileLog
    summary: Summary | None

    @property
    def out_of_memory(self) -> bool:
        """Whether the kernel killed a compiler, or the tool itself."""
        return self.log.out_of_memory or self.code in OUT_OF_MEMORY


def run_logged(command: Sequence[str], log: Path, environment: Mapping[str, str] = os.environ) -> int:
    """Run a command whose words go into a log, ended with all that it has started when this process is."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with storage_errors(log), log.open("wb") as file, _started(command, environment) as process:
        assert process.stdout is not None
        while piece := process.stdout.read1(_LINE_BYTES):  # type: ignore[attr-defined]  # it is buffered
            file.write(piece)
            file.flush()
        return process.wait()


def find_tool(environment: Mapping[str, str]) -> str:
    """Where the program is. Raises `PrecompileError` when it is not on PATH."""
    found = shutil.which(PROGRAM, path=environment.get("PATH"))
    if found is None:
        raise PrecompileError(
            f"{PROGRAM} is not on PATH: it comes with torch-neuronx; activate the environment of the Trn1 "
            "stack (on Slurm: target.setup), and start kitae there"
        )
    return found


def collect(tool: Tool, command: Sequence[str], log: Path) -> ToolRun:
    """Run `command`, which trains a little, and collect its graphs; what it computes means nothing."""
    return _run(tool, ["--command", "collect", *command], log)


def compile_collected(tool: Tool, command: Sequence[str], log: Path, graphs: int | None = None) -> ToolRun:
    """Compile what was collected; with half as many at a time once more, when memory has run out."""
    jobs = tool.asked.jobs or jobs_for(available_bytes(), processors(), graphs)
    tool.report(_said_of(jobs, tool.asked.jobs is not None))
    run = _compile(tool, command, log, jobs, tool.asked.retry_failed)
    _say_times(tool.report, run)
    if not run.out_of_memory:
        return run
    if jobs == 1:
        tool.report(
            "precompile: a compiler was killed for memory (exit code -9), one graph at a time: it needs more"
        )
        return run
    fewer = max(1, jobs // 2)
    tool.report(
        f"precompile: a compiler was killed for memory (exit code -9); once more, with {fewer} graphs at a "
        f"time instead of {jobs}"
    )
    # What was killed is remembered as failed, and would not be tried again.
    run = _compile(tool, command, log.with_name(f"{log.stem}-again{log.suffix}"), fewer, True)
    _say_times(tool.report, run)
    return run


def _say_times(report: Report, run: ToolRun) -> None:
    """What the tool says of its work: it decides nothing."""
    summary = run.summary
    if summary is None or not summary.graphs:
        counts = ", ".join(f"{count} {what}" for what, count in run.log.totals.items())
        report(f"precompile: the tool's summary cannot be read; it counts {counts or 'nothing'}")
        return
    worked = [one for one in summary.graphs.values() if one.worked]
    again = sum(one.retries > 0 for one in worked)
    times = [one.seconds for one in worked if one.seconds is not None]
    said = [
        f"the tool compiled {len(worked)} of {len(summary.graphs)} graphs",
        *([f"in {summary.seconds:.0f} s"] if summary.seconds is not None else ()),
        *([f"the longest in {max(times):.0f} s"] if times else ()),
        *([f"{again} of them at a second try or later"] if again else ()),
    ]
    report(f"precompile: {', '.join(said)}")


def _said_of(jobs: int, given: bool) -> str:
    why = (
        "as asked for"
        if given
        else f"{available_bytes() / (1 << 30):.0f} GiB of memory and {processors()} processors bear so many"
    )
    return f"precompile: compiling {jobs} graphs at a time ({why})"


def _compile(tool: Tool, command: Sequence[str], log: Path, jobs: int, retry_failed: bool) -> ToolRun:
    words = ["--num_parallel", str(jobs), "--command", "compile", *command]
    return _run(tool, words, log, retry_failed=retry_failed)


def _run(tool: Tool, words: Sequence[str], log: Path, *, retry_failed: bool = False) -> ToolRun:
    environment = {**tool.environment, _RETRIES: str(tool.asked.retries), _DUMP: "1"}
    if retry_failed and RETRY_FAILED not in environment.get(_FLAGS, ""):
        environment[_FLAGS] = f"{environment.get(_FLAGS, '')} {RETRY_FAILED}".strip()
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        storage_errors(log),
        log.open("wb") as file,
        _started([*tool.starter, tool.program, *words], environment) as process,
    ):
        assert process.stdout is not None
        teller = _Teller(tool.report)
        # In pieces: bars of progress may never end a line.
        while line := process.stdout.readline(_LINE_BYTES):
            file.write(line)
            teller.line(line)
        code = process.wait()
    content = log.read_bytes()
    summary = read_summary(content.decode("utf-8", errors="replace"))
    return ToolRun(code, read_log(content.splitlines(keepends=True)), summary)


class _Teller:
    """Says how far the tool is, whenever that has changed, and what it waits for; the rest is in its log."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._last: Progress | None = None
        self._waited: set[str] = set()

    def line(self, line: bytes) -> None:
        """Take a line of the tool's."""
        found = read_log([line])
        self._progress(found.progress)
        for module in found.waited:
            if module.name not in self._waited:
                self._report(f"precompile: waiting for {module.name}, which another process has locked")
                self._waited.add(module.name)

    def _progress(self, now: Progress | None) -> None:
        last = self._last
        if now is None or (last is not None and (now.done, now.failed) == (last.done, last.failed)):
            return
        failed = f", {now.failed} failed" if now.failed else ""
        self._report(f"precompile: {now.done} of {now.total} graphs in the cache are compiled{failed}")
        self._last = now


@contextmanager
def _started(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process of a group of its own, which ends when the block does, with all that it has started."""
    process = subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            _end(process)
        if process.stdout is not None:
            process.stdout.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
