"""The whole measurement: what is missing is made, and all that there is is judged."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from kitae.catalog import price_of
from kitae.errors import KitaeError, StoppedError, StorageError
from kitae.scale.here import measure_here, prepare_here, threads, threads_each, warnings_here
from kitae.scale.jobs import measure_in_jobs
from kitae.scale.measured import Measured, measured_of
from kitae.scale.predicted import predict
from kitae.scale.recipes import Wanted
from kitae.scale.record import write_scale
from kitae.scale.result import Scaling
from kitae.scale.setup import MEASURED, Order, Setup, failure, set_aside
from kitae.scale.verdict import counted
from kitae.stages.files import read_json
from kitae.stages.run_folder import now
from kitae.storage.lock import exclusive

Report = Callable[[str], None]


def measure(
    wanted: Wanted, report: Report, *, start_over: bool = False, detach: bool = False
) -> dict[str, Any]:
    """Measure what is missing; the content of `scale.json`, which is written after each measurement.

    Raises `RecipeError` for what cannot be measured, `StoppedError` after a stop signal, `KitaeError` where
    another process measures the same, or no width gave anything.
    """
    setup = Setup.of(wanted)
    with _alone(setup.folder):
        old = set_aside(setup.folder) if start_over else None
        old = setup.begin() or old
        if old is not None:
            report(f"earlier measurements are now in {old}")
        with _SURROUNDINGS[wanted.unit](setup):
            warnings = _make(setup, report, detach)
            found = conclude(setup, warnings)
    _refuse_nothing(setup, found)
    return found


def _make(setup: Setup, report: Report, detach: bool) -> list[str]:
    """Make what is missing; what a person was warned of."""
    missing, total = setup.missing(), len(list(setup.orders()))
    if not missing:
        report(f"all {total} measurements are there; --start-over makes them anew")
        return []
    if len(missing) < total:
        report(f"{total - len(missing)} of {total} measurements are there already")

    def measured(order: Order) -> None:
        report(told(setup, order))
        conclude(setup, [])

    return _WAYS[setup.wanted.unit](setup, report, measured, detach)


def _in_processes(setup: Setup, report: Report, measured: Callable[[Order], None], detach: bool) -> list[str]:
    said = list(warnings_here(setup))
    for line in said:
        report(line)
    prepare_here(setup, report)
    try:
        measure_here(setup, report, measured)
    except StoppedError:
        conclude(setup, [])
        left = len(setup.missing())
        raise StoppedError(
            f"stopped; {left} measurements are missing, the others are kept in {setup.folder}: run the same "
            "command again to go on"
        ) from None
    return [line.removeprefix("warning: ") for line in said if line.startswith("warning: ")]


_WAYS: Mapping[str, Callable[..., list[str]]] = {"workers": _in_processes, "nodes": measure_in_jobs}


_SURROUNDINGS: Mapping[str, Callable[[Setup], AbstractContextManager[None]]] = {
    "workers": lambda setup: threads(threads_each(max(setup.wanted.widths))),
    "nodes": lambda setup: nullcontext(),
}


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes from measuring the same meanwhile."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot make {folder.parent}: {error.strerror}; set runs to a folder that can be written to"
        ) from error
    # Beside the folder, which may be set aside.
    with exclusive(folder.with_name(f".{folder.name}.lock"), wait=False) as held:
        if not held:
            raise KitaeError(f"another kitae process measures in {folder}; wait for it")
        yield


def told(setup: Setup, order: Order) -> str:
    """A measurement, in a line."""
    one = measured_of(read_json(setup.place(order) / MEASURED))
    waits = "" if one.waits is None else f", {one.waits.mean:.0%} of it in collectives"
    return (
        f"round {order.round} of {setup.wanted.repeats}: {counted(order.width, setup.wanted.unit)}: "
        f"{one.step_s:.3g} s an update{waits}, {one.rate:,.0f} tokens/s"
    )


def conclude(setup: Setup, warnings: list[str]) -> dict[str, Any]:
    """Judge all that there is, and write it down."""
    content = scaling_of(setup, warnings).as_json()
    write_scale(setup.folder, content)
    return content


def scaling_of(setup: Setup, warnings: list[str]) -> Scaling:
    """All that there is of a setup."""
    wanted, orders = setup.wanted, list(setup.orders())
    facts = [read_json(setup.place(order) / MEASURED) for order in orders if setup.is_done(order)]
    measured = [measured_of(one) for one in facts]
    local = wanted.unit == "workers"
    folders = {one.width: setup.place(one) for one in orders if setup.is_done(one)}
    kind = wanted.instance or next((one["instance"] for one in facts if one["instance"]), None)
    predicted, why = predict(dict(sorted(folders.items())), kind, local=local) if folders else ({}, "")
    return Scaling(
        name=setup.name,
        kind=wanted.kind,
        unit=wanted.unit,
        rate_of="tokens",
        threshold=wanted.threshold,
        widths=sorted(wanted.widths),
        measured=measured,
        failed=failures(setup, measured),
        predicted=predicted,
        price=prices(setup, kind),
        about={**_about(setup, facts), "machine": "this machine" if local else kind},
        warnings=[*warnings, *([why] if why else [])],
        wanted=len(orders),
    )


def _about(setup: Setup, facts: list[dict[str, Any]]) -> dict[str, Any]:
    first = facts[0] if facts else {}
    return {
        "recipe": str(setup.wanted.recipe),
        "phase": setup.phase,
        "made": now(),
        "backend": first.get("backend"),
        "precision": first.get("precision"),
        "steps": setup.wanted.steps,
        "warm_up": setup.wanted.warm_up,
        "repeats": setup.wanted.repeats,
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def failures(setup: Setup, measured: list[Measured]) -> dict[int, str]:
    """Widths of which a measurement failed -> why; told even where others of the width are there."""
    found: dict[int, str] = {}
    for order in setup.orders():
        why = failure(setup.place(order))
        if why is not None and not setup.is_done(order):
            found.setdefault(order.width, why)
    return found


def prices(setup: Setup, kind: str | None) -> dict[int, float]:
    """US dollars an hour by width, where the recipe or the catalogue knows what a node costs."""
    known = price_of(kind) if kind is not None else None
    found = {}
    for width, recipe in setup.recipes.items():
        price = recipe.target.price_per_node_hour or (None if known is None else float(known.usd))
        if price is not None:
            found[width] = price * (width if setup.wanted.unit == "nodes" else 1)
    return found


def _refuse_nothing(setup: Setup, found: Mapping[str, Any]) -> None:
    if found["base"] is None:
        why = next((row["failed"] for row in found["widths"] if row["failed"]), "no job has ended")
        raise KitaeError(f"nothing was measured: {why}")
