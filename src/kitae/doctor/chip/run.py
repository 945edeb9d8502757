"""Goes through the parts of a chip test. What fails is told and the rest goes on; a stop leaves the page."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from kitae.backend.base import Backend
from kitae.backend.stack import instance_type, neuron_package, stack_here
from kitae.doctor.chip import judge
from kitae.doctor.chip.judge import Result
from kitae.doctor.chip.page import NAME, write_page
from kitae.doctor.chip.recorded import recorded
from kitae.doctor.neuron_devices import driver_version
from kitae.errors import KitaeError, StoppedError
from kitae.launch.local import launch_ranks
from kitae.launch.order import Launch
from kitae.model.neuron_attention import SOURCES
from kitae.storage.disk import storage_errors

WORK = "kitae.doctor.chip.work"
CHIPS = ("trn1-xla", "torchneuron")
_RANKS_OF_A_CPU = 2
_PATIENCE_S = {True: 3600.0, False: 120.0}
"""Without a sign of life, by whether graphs are compiled for a chip."""
Report = Callable[[str], None]


@dataclass(frozen=True)
class Bench:
    """Where the test runs."""

    backend: str
    stack: str
    devices: int
    folder: Path
    """Of the work; the page lies above it."""

    @property
    def chip(self) -> bool:
        """Whether it is a Neuron chip."""
        return self.stack in CHIPS

    @property
    def ranks(self) -> int:
        """That exchange data: all that one machine has, of a CPU two."""
        return _RANKS_OF_A_CPU if self.stack == "cpu" else self.devices


Test = Callable[[Bench], Result]


def chip_test(backend: type[Backend], out: Path, report: Report) -> dict[str, Result]:
    """Try everything; the results by part. The page lies in `out` whenever and however this ends.

    Raises `StorageError` when nothing can be written there.
    """
    stack = stack_here(backend.name)
    bench = Bench(backend.name, stack, backend.devices(), out / f"{NAME}-work")
    with storage_errors(out):
        shutil.rmtree(bench.folder, ignore_errors=True)
        bench.folder.mkdir(parents=True)
    facts = facts_of(bench)
    results = {name: Result("not reached", "the test was stopped before") for name in PARTS}
    for name, test in PARTS.items():
        page = write_page(out, facts, results)
        report(f"{name} …")
        begin = time.perf_counter()
        try:
            results[name] = _tried(test, bench)
        except (StoppedError, KeyboardInterrupt):
            results[name] = Result("not reached", "stopped while it ran")
            write_page(out, facts, results)
            report(f"stopped; what there is so far: {page}")
            raise
        results[name] = replace(results[name], seconds=time.perf_counter() - begin)
        report(f"{name}: {results[name].verdict}: {results[name].text}")
    page = write_page(out, facts, results)
    report(f"the page to send back: {page} (and {page.with_suffix('.json').name})")
    return results


def _tried(test: Test, bench: Bench) -> Result:
    try:
        return test(bench)
    except StoppedError:
        raise
    except (KitaeError, OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError) as error:
        return Result("failed", f"{type(error).__name__}: {error}")


def _worked(bench: Bench, part: str, ranks: int, precision: str = "bf16") -> Mapping[str, object]:
    """Let processes of their own do a part; what they wrote. Raises what the launch raises."""
    folder = bench.folder / part
    folder.mkdir(exist_ok=True)
    launch = Launch(
        world_size=ranks,
        tp_size=1,
        backend=bench.backend,
        timeout_s=_PATIENCE_S[bench.chip],
        logs=folder / "logs",
        title=f"chip test, {part}",
        precision=precision,
        on_stop="ending; the page so far is kept",
    )
    launch_ranks(f"{WORK}:{part}", {"backend": bench.backend, "folder": str(folder)}, launch)
    found: Mapping[str, object] = json.loads((folder / f"{part}.json").read_text(encoding="utf-8"))
    return found


def _collectives(bench: Bench) -> Result:
    if bench.ranks < 2:
        return Result("left out", "there is one process only, which has nobody to exchange data with")
    return judge.judge_collectives(_worked(bench, "collectives", bench.ranks))


def _losses(bench: Bench) -> Result:
    found = _worked(bench, "losses", 1)
    return judge.judge_losses(found, recorded(), bench.stack)


def _rounding(bench: Bench) -> Result:
    """With the precision that has the chip told to round by chance."""
    return judge.judge_rounding(_worked(bench, "rounding", 1, "bf16-sr"), bench.chip)


def _attention(bench: Bench) -> Result:
    if bench.stack not in SOURCES:
        return Result("left out", "there is one form of attention here, and nothing to choose")
    return judge.judge_attention(_worked(bench, "attention", 1))


def _resume(bench: Bench) -> Result:
    return judge.judge_resume(_worked(bench, "resume", 1))


def _precompile(bench: Bench) -> Result:
    """As a user types it, for a recipe of its own."""
    from kitae.doctor.chip.recipe import write_recipe

    recipe = write_recipe(bench.folder / "precompile", bench.backend)
    command = [sys.executable, "-m", "kitae", "precompile", str(recipe)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_PATIENCE_S[bench.chip],
        check=False,
    )
    return judge.judge_precompile(done.returncode, done.stdout + done.stderr)


PARTS: dict[str, Test] = {
    "collectives": _collectives,
    "losses": _losses,
    "rounding": _rounding,
    "attention kernel": _attention,
    "save and resume": _resume,
    "precompile": _precompile,
}
"""In this order: what is short, and most telling, comes first."""


def facts_of(bench: Bench) -> dict[str, str]:
    """What the page says of the machine; nothing that names a person or a network."""
    import torch

    import kitae

    package = neuron_package()
    return {
        "kitae": kitae.__version__,
        "machine": instance_type() or "unknown type",
        "backend": f"{bench.backend} ({bench.stack}), {bench.devices} devices",
        "processor": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch-xla": _version("torch-xla"),
        "torch-neuronx": f"{package.version} ({package.kind})" if package.version else "not installed",
        "neuronx-cc": _version("neuronx-cc"),
        "neuron driver": driver_version() or "not loaded",
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
