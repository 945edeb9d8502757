"""Compiling what was collected on one machine, and what its cache then has of it.

`python -m kitae.stages.compile_node FOLDER` is what the starter of several machines runs once on each: the
order lies in FOLDER, which all of them see, and each leaves its answer there. Caches are each machine's own.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kitae.errors import KitaeError, PrecompileError
from kitae.launch.environment import surrounded
from kitae.launch.orphans import bound
from kitae.precompile.answer import said_of_locks
from kitae.precompile.caches import check_root, place_of
from kitae.precompile.drive import (
    Compiling,
    Report,
    Tool,
    ToolRun,
    compile_collected,
    find_tool,
    run_logged,
)
from kitae.precompile.entries import Entry, Lock
from kitae.stages.job import Machines
from kitae.storage.files import replace_file

_ORDER = "compile-order.json"


@dataclass(frozen=True)
class Order:
    """What a machine has to compile."""

    backend: str
    precision: str
    kind: str
    """Of the compiler's cache."""
    names: tuple[str, ...]
    """Graphs that the training needs, as the cache calls them."""
    command: tuple[str, ...]
    """The trial run, which the tool wants to be told again."""
    asked: Compiling
    compiles: bool = True
    """Otherwise the cache is only looked at."""

    @classmethod
    def read(cls, folder: Path) -> Order:
        """The order that lies in a folder."""
        values = json.loads((folder / _ORDER).read_text(encoding="utf-8"))
        values |= {"asked": Compiling(**values["asked"])}
        return cls(**{**values, "names": tuple(values["names"]), "command": tuple(values["command"])})


def compile_here(order: Order, folder: Path, report: Report, name: str = "") -> list[Entry]:
    """Compile what is missing on this machine; the entries of the needed graphs. Raises `PrecompileError`."""
    with surrounded(order.backend, order.precision):
        place = place_of(order.kind)
        check_root(place)
        run = None
        if order.compiles and _open_graphs(order.names, place.entries(), report):
            environment = dict(os.environ)
            tool = Tool(find_tool(environment), environment, report, order.asked, bound())
            log = folder / f"compile{name and '-'}{name}.log"
            run = compile_collected(tool, order.command, log, len(set(order.names)))
        found = _needed_entries(order.names, place.entries())
    return found if run is None else _told_by_log(found, order.names, run, report)


def _told_by_log(found: list[Entry], names: Sequence[str], run: ToolRun, report: Report) -> list[Entry]:
    """Entries, with what the log says of those that failed, where the cache does not say it."""
    done = {entry.name for entry in found if entry.state == "done"}
    if run.log.passes and not done.issuperset(names):
        report(
            f"precompile: the compiler said PASS {run.log.passes} times; that says nothing of what is missing"
        )
    why = {module.name: text for module, text in run.log.failed.items()}
    return [
        replace(entry, why=entry.why or why.get(entry.name, "")) if entry.state == "failed" else entry
        for entry in found
    ]


def _needed_entries(names: Sequence[str], entries: Sequence[Entry]) -> list[Entry]:
    """Those of the graphs, with other compilers or other flags, too: they say why one is missing."""
    graphs = {name.partition("+")[0] for name in names}
    return [entry for entry in entries if entry.graph in graphs]


def _open_graphs(names: Sequence[str], entries: Sequence[Entry], report: Report) -> int:
    """How many are to be compiled. Raises `PrecompileError` for one that would be waited for without end."""
    mine = [entry for entry in entries if entry.name in names]
    left = [entry for entry in mine if entry.state != "done" and _is_left(entry)]
    if left:
        raise PrecompileError(
            f"{left[0].label} is locked {said_of_locks(left[0])}; the compiler would wait for it without "
            "end: remove it (--yes), and run the same command"
        )
    done = {entry.name for entry in mine if entry.state == "done"}
    report(f"precompile: {len(set(names))} graphs, {len(done)} of them are in the cache")
    others = sum(entry.state == "empty" for entry in entries if entry.name not in names)
    if others:
        report(
            f"precompile: {others} graphs that were collected for other trainings lie in this cache, and the "
            "tool compiles them, too (kitae cache prune --kind neuron --state empty removes them)"
        )
    return len(set(names) - done)


def _is_left(entry: Entry) -> bool:
    return any(lock.holder == "gone" for lock in entry.locks)


# ---- several machines


def compile_on(machines: Machines, order: Order, folder: Path) -> dict[str, list[Entry]]:
    """The same on several machines at once; entries by machine. Raises what the first of them raised."""
    for left in folder.glob("node-*.json"):
        left.unlink()
    replace_file(folder / _ORDER, json.dumps(asdict(order)).encode())
    log = folder / "compile-nodes.log"
    run_logged([*machines.starter, sys.executable, "-m", __name__, str(folder)], log)
    found = {}
    for name in machines.names:
        try:
            said = json.loads(_answer_file(folder, name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise PrecompileError(f"{name} gave no answer; what it said is in {log}") from None
        if said["error"]:
            raise PrecompileError(f"{name}: {said['error']}")
        found[name] = [_entry(one) for one in said["entries"]]
    return found


def _answer_file(folder: Path, name: str) -> Path:
    return folder / f"node-{name}.json"


def _entry(value: dict[str, Any]) -> Entry:
    locks = tuple(Lock(**{**lock, "path": Path(lock["path"])}) for lock in value["locks"])
    return Entry(**{**value, "path": Path(value["path"]), "locks": locks})


def main() -> None:
    """Do what the order says on this machine, and leave its answer."""
    folder = Path(sys.argv[1])
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    entries: list[Entry] = []
    error = ""
    try:
        order = Order.read(folder)
        entries = compile_here(order, folder, lambda line: print(f"{name}: {line}", flush=True), name)
    except KitaeError as raised:
        error = str(raised)
    answer = {"error": error, "entries": [asdict(entry) for entry in entries]}
    replace_file(_answer_file(folder, name), json.dumps(answer, default=str).encode())


if __name__ == "__main__":
    main()
