"""`kitae calibrate`: how fast this machine is, for plans of trainings on it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kitae.plan.calibration import Calibration


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command("calibrate")(calibrate)


def calibrate(
    show: Annotated[bool, typer.Option("--show", help="Only show what was measured before.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure how fast this machine is, in under a minute, so that plans of trainings here are right."""
    found = _kept() if show else _measured(quiet=as_json)
    if as_json:
        print(json.dumps(asdict(found), indent=2))
    else:
        _print(found)


def _kept() -> Calibration:
    from kitae.errors import KitaeError
    from kitae.plan.calibration import load, path_of
    from kitae.plan.identity import identity

    found = load()
    if found is None:
        where = path_of(identity())
        raise KitaeError(f"{where}: no calibration of this machine with this torch; run kitae calibrate")
    return found


def _measured(*, quiet: bool) -> Calibration:
    """Measure, and replace what was measured before; an interrupt leaves that as it was."""
    from kitae.calibrate.measure import calibrate as measure
    from kitae.cli.run_verbs import refuse_launcher
    from kitae.plan.calibration import save

    refuse_launcher()
    found = measure(_unsaid if quiet else _say)
    path = save(found)
    if not quiet:
        print(f"calibrate: {found.took_s:.0f} s; {path} holds it, and nothing of an earlier one")
        if not found.is_whole:
            print(
                "calibrate: warning: others are at work here, and not all could be measured in time: plans "
                "take the rest from one thread; run it again when the machine is quiet"
            )
    return found


def _say(what: str) -> None:
    """One line that the next one overwrites, on a terminal alone."""
    if sys.stderr.isatty():
        print(f"\r\033[Kmeasuring: {what}", end="", file=sys.stderr, flush=True)


def _unsaid(what: str) -> None:
    """Nothing."""


def _print(found: Calibration) -> None:
    from rich.console import Console
    from rich.table import Table

    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    console = Console() if sys.stdout.isatty() else Console(width=120)
    machine = found.machine
    print(
        f"{machine.processor}, {machine.cores} cores, {machine.memory_gib} GiB, torch {machine.torch}; "
        f"measured {found.made}"
    )
    for rows in (_products(found), _others(found), _fits(found)):
        table = Table(box=None, pad_edge=False)
        for name in rows[0]:
            table.add_column(name)
        for row in rows[1:]:
            table.add_row(*row)
        console.print(table, highlight=False)


def _products(found: Calibration) -> list[tuple[str, ...]]:
    """Linear layers with their gradients, a line a shape, a column for each precision and thread count."""
    kinds = list(dict.fromkeys((one.precision, one.threads) for one in found.products))
    shapes = list(dict.fromkeys((one.tokens, one.inputs, one.outputs) for one in found.products))
    speed = {
        (one.precision, one.threads, one.tokens, one.inputs, one.outputs): f"{one.flops / 1e9:.0f}"
        for one in found.products
    }
    head = (
        "products, GFLOP/s",
        *(f"{kind}, {threads} thread{'s' * (threads > 1)}" for kind, threads in kinds),
    )
    lines = [
        (" x ".join(map(str, shape)), *(speed.get((*kind, *shape), "") for kind in kinds)) for shape in shapes
    ]
    return [head, *lines]


def _others(found: Calibration) -> list[tuple[str, ...]]:
    values = {
        "memory, copy": f"{found.memory_bytes_per_s / 1e9:.1f} GB/s",
        "memory, pass in cache": f"{found.pass_bytes_per_s / 1e9:.1f} GB/s",
        "all-reduce of 2 processes": (
            f"{found.collective_floor_s * 1e6:.0f} us + bytes / {found.collective_bytes_per_s / 1e9:.2f} GB/s"
        ),
        "disk, written and synced": f"{found.disk_write_bytes_per_s / 1e6:.0f} MB/s",
        "disk, a small file": f"{found.disk_sync_s * 1e3:.1f} ms",
        "disk, read back": f"{found.disk_read_bytes_per_s / 1e9:.1f} GB/s",
        "SHA-256": f"{found.hash_bytes_per_s / 1e9:.2f} GB/s",
    }
    return [("measured", ""), *values.items()]


def _fits(found: Calibration) -> list[tuple[str, ...]]:
    lines = [
        (one.precision, str(one.processes), str(one.threads), f"{one.misfit:.1%}", f"{one.spread:.1%}")
        for one in found.speeds
    ]
    return [("pieces of an update", "processes", "threads", "misfit", "slower than best"), *lines]
