"""What the plan says of the same recipe at each width: its curve, to hold the measured one against."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kitae.catalog.instances import instances
from kitae.errors import KitaeError
from kitae.scale.result import Predicted


def predict(
    folders: Mapping[int, Path], kind: str | None, *, local: bool
) -> tuple[dict[int, Predicted], str]:
    """By width, from the recipes in the folders; and why there is nothing, where there is nothing.

    `kind` is what the nodes are; on this machine the plan needs none.
    """
    from kitae.stages.estimating import estimate_of, machine_of, open_plan, shape_of

    rented_as = instances().get(kind or "")
    if not local and rented_as is None:
        return {}, _unknown(kind)
    found = {}
    try:
        for width, folder in folders.items():
            nodes = None if local else width
            job = open_plan(folder, rented_as=rented_as, nodes=nodes, report=lambda line: None)
            (phase,) = estimate_of(job, shape_of(job, guess=True), machine_of(job, rented_as)).phases
            rows = phase.work.global_rows * phase.work.length
            seconds = phase.time.seconds
            found[width] = Predicted(seconds, rows / seconds, phase.time.communication / seconds)
    except KitaeError as error:
        return {}, f"there is no plan to compare with: {error}"
    return found, ""


def _unknown(kind: str | None) -> str:
    if kind is None:
        return "there is no plan to compare with: say what the nodes are with --instance"
    return f"there is no plan to compare with: the nodes are {kind}, which the catalogue does not have"
