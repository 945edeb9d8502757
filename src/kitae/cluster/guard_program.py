"""Watches the machines of jobs on the head node, every minute: what bills and does not come is ended.

The head node's own Python runs this file, so nothing of kitae can be imported here. kitae itself reads the
same logs by the same rules (`Tally`). What counts as a failed boot is what ParallelCluster's `clustermgtd`
says is one; it ends such a loop itself only after ten, and never while other jobs run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

LOGS = ("/var/log/parallelcluster/clustermgtd", "/var/log/parallelcluster/slurm_resume.log")
STATE = "/var/lib/kitae/guard.json"
LIMITS, REPORT = "limits.json", "report.json"
"""In the bucket's folder."""
_NODE = re.compile(r"\b([a-z][a-z0-9-]*)-(?:st|dy)-[a-z0-9-]+-\d+\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_FAILED = re.compile(r"Found the following bootstrap failure nodes: *\(x\d+\) *(\[.*\])")
_WHY = re.compile(r"Node bootstrap error: *(.*?)(?:, node state: .*)?$")
_CAME = re.compile(r"Find successfully launched node in partition ([\w-]+), reset")
_LAUNCHED = re.compile(r"Nodes are now configured with instances *\(x\d+\) *(\[.*\])")
_REFUSED = re.compile(
    r"when launching instances for nodes *\(x\d+\) *(\[.*?\]): "
    r".*?\(([\w.]+)\) when calling the \w+ operation(?: \([^)]*\))?: (.*)"
)
CLOSED = "the queue is closed until kitae cluster start"
_SHORTEST_S = 60.0
"""A machine that is told to have failed sooner was launched in the place of the one that did."""


@dataclass
class Tally:
    """What the logs say of each queue's machines so far."""

    failed: dict[str, int] = field(default_factory=dict)
    """Boots that failed since the last that did not."""
    why: dict[str, str] = field(default_factory=dict)
    """Of the last that failed."""
    refused: dict[str, str] = field(default_factory=dict)
    """AWS's last refusal to start machines: code and words."""
    machine_s: dict[str, float] = field(default_factory=dict)
    """Seconds of machines that failed, added up."""
    launched: dict[str, float] = field(default_factory=dict)
    """When the machine of a node was started."""

    def read(self, line: str) -> None:
        """Take in a line of `clustermgtd` or `slurm_resume.log`."""
        for pattern, take in _LINES:
            found = pattern.search(line)
            if found is not None:
                take(self, line, found)
                return

    def read_all(self, lines: Iterable[str]) -> Tally:
        """Take in lines, oldest first; itself."""
        for line in lines:
            self.read(line)
        return self

    def forget(self, queue: str) -> None:
        """Begin to count anew."""
        for counts in (self.failed, self.machine_s, self.why):
            counts.pop(queue, None)

    def _failure(self, line: str, found: re.Match[str]) -> None:
        for node, queue in _nodes(found[1]):
            self.failed[queue] = self.failed.get(queue, 0) + 1
            begun, now_s = self.launched.get(node), _seconds(line)
            if begun is not None and now_s - begun >= _SHORTEST_S:
                self._paid(queue, now_s - begun)
                del self.launched[node]

    def _launch(self, line: str, found: re.Match[str]) -> None:
        for node, queue in _nodes(found[1]):
            begun, now_s = self.launched.get(node), _seconds(line)
            if begun is not None:
                self._paid(queue, now_s - begun)
            self.launched[node] = now_s

    def _paid(self, queue: str, seconds: float) -> None:
        self.machine_s[queue] = self.machine_s.get(queue, 0.0) + seconds

    def _reason(self, line: str, found: re.Match[str]) -> None:
        for _, queue in _nodes(found[1]):
            self.why[queue] = found[1]

    def _success(self, line: str, found: re.Match[str]) -> None:
        self.forget(found[1])
        self.refused.pop(found[1], None)
        self.launched = {
            node: at for node, at in self.launched.items() if not re.match(f"{found[1]}-(?:st|dy)-", node)
        }

    def _refusal(self, line: str, found: re.Match[str]) -> None:
        for _, queue in _nodes(found[1]):
            self.refused[queue] = f"{found[2]}: {found[3].strip()}"


_LINES: tuple[tuple[re.Pattern[str], Callable[[Tally, str, re.Match[str]], None]], ...] = (
    (_FAILED, Tally._failure),
    (_LAUNCHED, Tally._launch),
    (_WHY, Tally._reason),
    (_CAME, Tally._success),
    (_REFUSED, Tally._refusal),
)


def _nodes(text: str) -> Iterator[tuple[str, str]]:
    """Nodes that a text names, each once, with their queues."""
    for match in {found[0]: found for found in _NODE.finditer(text)}.values():
        yield match[0], match[1]


def _seconds(line: str) -> float:
    """The time of a line, which the logs write in UTC."""
    found = _TIME.search(line)
    if found is None:
        return 0.0
    return datetime.fromisoformat(found[0]).replace(tzinfo=timezone.utc).timestamp()


@dataclass(frozen=True)
class Limits:
    """What the cluster file allows."""

    boot_failures: int
    capacity_wait_s: float
    usd: dict[str, str]
    """Of a machine for an hour, by queue; a queue without a price is not here."""

    @classmethod
    def at(cls, path: Path) -> Limits:
        """Out of a file; where there is none that can be read, what a cluster file allows by default."""
        try:
            kept: dict[str, Any] = json.loads(path.read_text("utf-8"))
            return cls(**kept)
        except (OSError, ValueError, TypeError):
            return cls(5, 1200.0, {})

    def cost(self, queue: str, machine_s: float) -> str:
        """What machines cost for seconds that are added up over them."""
        if queue not in self.usd:
            return "at a price that is not known"
        usd = Decimal(str(machine_s)) / 3600 * Decimal(self.usd[queue])
        return f"which cost ${usd.quantize(Decimal('0.01')):,}"


@dataclass(frozen=True)
class Waiting:
    """A job some of whose machines have not come."""

    job: str
    queue: str
    nodes: str
    wanted: int
    came: int
    waited_s: float


@dataclass(frozen=True)
class Verdict:
    """What is ended, and why; as it lies in the bucket."""

    time: str
    queue: str
    text: str


Run = Callable[[Sequence[str]], str]


def jobs_that_wait(run: Run) -> list[Waiting]:
    """Jobs that Slurm has given machines, not all of which are up."""
    found = []
    for job, queue, wanted, waited, nodes in _rows(run, ["squeue", "-h", "-t", "CF"], "%i|%P|%D|%M|%N"):
        states = dict(_rows(run, ["sinfo", "-h", "-N", "-n", nodes], "%N|%t")) if nodes else {}
        # A mark behind the state, such as # or ~, says that it is not up.
        came = sum(state.isalpha() for state in states.values())
        found.append(Waiting(job, queue, nodes, int(wanted), came, _span(waited)))
    return found


def _rows(run: Run, words: Sequence[str], form: str) -> Iterator[list[str]]:
    """Rows that a program of Slurm prints in a form with bars; others are none of the table."""
    for line in run([*words, "-o", form]).splitlines():
        row = line.strip().split("|")
        if len(row) == form.count("|") + 1:
            yield row


def _span(text: str) -> float:
    """Seconds of `[days-][[hours:]minutes:]seconds`; 0 of anything else, such as INVALID."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(?:(\d+):)?(\d+)", text)
    if found is None:
        return 0.0
    days, first, second, last = (int(part or 0) for part in found.groups())
    # With one colon the first number is of minutes.
    hours, minutes = (first, second) if found[3] is not None else (0, first)
    return float(((days * 24 + hours) * 60 + minutes) * 60 + last)


def end_loops(tally: Tally, limits: Limits, run: Run, now: datetime) -> list[Verdict]:
    """Close queues whose machines fail to boot again and again. Jobs that run there go on."""
    found = []
    for queue, failed in list(tally.failed.items()):
        if failed < limits.boot_failures:
            continue
        why = f" ({tally.why[queue]})" if queue in tally.why else ""
        cost = limits.cost(queue, tally.machine_s.get(queue, 0.0))
        text = f"{failed} machines failed to boot{why}, {cost}; {_end(run, queue)}"
        found.append(Verdict(f"{now:%Y-%m-%dT%H:%M:%SZ}", queue, text))
        tally.forget(queue)
    return found


def _end(run: Run, queue: str) -> str:
    """Close a queue, or hold the jobs that wait there while others run; what was done, in words."""
    if not run(["squeue", "-h", "-t", "R", "-p", queue, "-o", "%i"]).split():
        _close(run, queue)
        return CLOSED
    jobs = [one.job for one in jobs_that_wait(run) if one.queue == queue]
    _hold(run, jobs)
    return f"jobs run there, so those that wait are held ({', '.join(jobs) or 'none'})"


def _close(run: Run, queue: str) -> None:
    """As ParallelCluster's own protected mode does: its machines are terminated, and none is started."""
    run(["scontrol", "update", f"partitionname={queue}", "state=inactive"])
    run(["update-compute-fleet-status.sh", "--status", "PROTECTED"])


def end_waits(limits: Limits, run: Run, now: datetime) -> list[Verdict]:
    """Give back machines that wait too long for others of their job, and hold the job."""
    found = []
    for one in jobs_that_wait(run):
        if one.waited_s < limits.capacity_wait_s:
            continue
        _hold(run, [one.job])
        run(["scontrol", "update", f"nodename={one.nodes}", "state=power_down_force", "reason=kitae"])
        cost = limits.cost(one.queue, one.came * one.waited_s)
        text = (
            f"{one.came} of {one.wanted} machines of job {one.job} came, and waited "
            f"{one.waited_s / 60:.0f} minutes for the others, {cost}; they are given back, and the job is "
            f"held (scontrol release {one.job})"
        )
        found.append(Verdict(f"{now:%Y-%m-%dT%H:%M:%SZ}", one.queue, text))
    return found


def end_partial_fleets(since: dict[str, float], limits: Limits, run: Run, now: datetime) -> list[Verdict]:
    """Close queues where some of the machines that are always on wait too long for the others."""
    found = []
    fleets = _fleets(run)
    for queue in [one for one in since if one not in fleets]:
        del since[queue]
    for queue, (came, wanted) in fleets.items():
        waited = now.timestamp() - since.setdefault(queue, now.timestamp())
        if waited < limits.capacity_wait_s:
            continue
        _close(run, queue)
        text = (
            f"{came} of {wanted} machines came, and waited {waited / 60:.0f} minutes for the others, "
            f"{limits.cost(queue, came * waited)}; {CLOSED}"
        )
        found.append(Verdict(f"{now:%Y-%m-%dT%H:%M:%SZ}", queue, text))
        del since[queue]
    return found


def _fleets(run: Run) -> dict[str, tuple[int, int]]:
    """Queues where some of the machines that are always on are up and idle: how many, of how many."""
    states: dict[str, dict[str, str]] = {}
    for node, queue, state in _rows(run, ["sinfo", "-h", "-N"], "%N|%R|%t"):
        if node.startswith(f"{queue}-st-") and not state.startswith("inact"):
            states.setdefault(queue, {})[node] = state
    counts = {queue: (list(of.values()).count("idle"), len(of)) for queue, of in states.items()}
    working = {queue for queue, of in states.items() if {"alloc", "mix", "comp"} & set(of.values())}
    return {queue: n for queue, n in counts.items() if 0 < n[0] < n[1] and queue not in working}


def _hold(run: Run, jobs: Sequence[str]) -> None:
    for job in jobs:
        run(["scontrol", "requeuehold", job])


@dataclass
class Memory:
    """What one look keeps for the next."""

    tally: Tally = field(default_factory=Tally)
    offsets: dict[str, list[int]] = field(default_factory=dict)
    """By log: which file it was, and how far it was read."""
    since: dict[str, float] = field(default_factory=dict)
    """By queue: when some of the machines that are always on were first up without the others."""
    verdicts: list[dict[str, str]] = field(default_factory=list)
    told: int = 0
    """So many verdicts are in the bucket."""

    @classmethod
    def at(cls, path: Path) -> Memory:
        """That of the last look; an empty one where there is none that can be read."""
        try:
            kept: dict[str, Any] = json.loads(path.read_text("utf-8"))
            return cls(**{**kept, "tally": Tally(**kept["tally"])})
        except (OSError, ValueError, KeyError, TypeError):
            return cls()

    def keep(self, path: Path) -> None:
        """Write it as a whole."""
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(self)), "utf-8")
        new.replace(path)

    def new_lines(self, log: Path) -> list[str]:
        """Whole lines of a log since the last look; from its beginning where it is another file by now."""
        try:
            now = log.stat()
            which, begun = self.offsets.get(str(log), [now.st_ino, 0])
            with log.open("rb") as file:
                file.seek(begun if which == now.st_ino and begun <= now.st_size else 0)
                start = file.tell()
                found = file.read()
        except OSError:
            return []
        whole = found[: found.rfind(b"\n") + 1]
        self.offsets[str(log)] = [now.st_ino, start + len(whole)]
        return whole.decode("utf-8", "replace").splitlines()


def look(limits: Limits, run: Run, logs: Sequence[Path], state: Path, now: datetime) -> list[Verdict]:
    """One look: what was ended by it."""
    memory = Memory.at(state)
    for log in logs:
        memory.tally.read_all(memory.new_lines(log))
    found = [
        *end_loops(memory.tally, limits, run, now),
        *end_waits(limits, run, now),
        *end_partial_fleets(memory.since, limits, run, now),
    ]
    memory.verdicts += [asdict(one) for one in found]
    memory.keep(state)
    return found


def tell(state: Path, report: str, copied: Callable[[Path, str], bool]) -> None:
    """Put what was ended so far into the bucket, until that worked."""
    memory = Memory.at(state)
    if len(memory.verdicts) > memory.told and copied(state, report):
        memory.told = len(memory.verdicts)
        memory.keep(state)


def _done(words: Sequence[str]) -> str | None:
    """What a program printed; None where it failed, which is noted."""
    try:
        done = subprocess.run(list(words), capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout
        why = done.stderr.strip()
    except OSError as error:
        why = str(error.strerror)
    print(f"kitae guard: {' '.join(words)}: {why}", flush=True)
    return None


def _run(words: Sequence[str]) -> str:
    return _done(words) or ""


def _copied(source: Path | str, to: Path | str) -> bool:
    return _done(["aws", "s3", "cp", "--only-show-errors", str(source), str(to)]) is not None


def main(words: Sequence[str]) -> None:
    """One look. The one argument is a folder of the bucket: with the limits, and for what was ended."""
    [folder] = words
    root = Path(os.environ.get("KITAE_ROOT") or "/")
    state, logs = root / STATE.lstrip("/"), [root / log.lstrip("/") for log in LOGS]
    limits = state.with_name("limits.json")
    limits.parent.mkdir(parents=True, exist_ok=True)
    # They may have been changed since; where the bucket cannot be reached, the last ones hold.
    _copied(f"{folder}/{LIMITS}", limits)
    for one in look(Limits.at(limits), _run, logs, state, datetime.now(timezone.utc)):
        print(f"kitae guard: queue {one.queue}: {one.text}", flush=True)
    tell(state, f"{folder}/{REPORT}", _copied)


if __name__ == "__main__":
    main(sys.argv[1:])
