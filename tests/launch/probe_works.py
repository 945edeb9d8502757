"""Ranks that are tried, some of them on machines that only seem to be slow or broken."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kitae.errors import StorageError
from kitae.launch import probe
from kitae.launch.probe import Probe, check_rank
from kitae.parallel.mesh import Mesh


def check_with_a_slow_machine(mesh: Mesh, folder: str) -> None:
    """The last machine takes twice as long."""
    measured = Probe.matmul

    def slower(self: Probe) -> tuple[float, str]:
        seconds, wrong = measured(self)
        return seconds * (5.0 if mesh.rank == mesh.control.size - 1 else 1.0), wrong

    Probe.matmul = slower  # type: ignore[method-assign]
    check_rank(mesh, folder)


def check_broken(mesh: Mesh, folder: str, what: str) -> list[list[str]]:
    """What is said of each rank when the first one computes, or sends, something wrong."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCAL_WORLD_SIZE", "1")
        if mesh.rank == 0:
            _BREAK[what](patch)
        check_rank(mesh, folder)
    return [[report.wrong for report in one] for one in probe.read_rounds(Path(folder))] if mesh.leads else []


def _break_products(patch: pytest.MonkeyPatch) -> None:
    usual = torch.Tensor.__matmul__

    def wrong(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        product = usual(left, right)
        if product.dtype == torch.float32:
            product[7, 9] += 1.0
        return product

    patch.setattr(torch.Tensor, "__matmul__", wrong)


def _break_links(patch: pytest.MonkeyPatch) -> None:
    usual = torch.full

    def wrong(size: tuple[int, ...], value: float, **options: object) -> torch.Tensor:
        made = usual(size, value, **options)  # type: ignore[call-overload]
        if made.dtype == torch.uint8:
            made[12345] += 1
        return made

    patch.setattr(probe.torch, "full", wrong)


def _break_shared_folder(patch: pytest.MonkeyPatch) -> None:
    usual = probe.replace_file

    def full(path: Path, content: bytes) -> None:
        if path.name.startswith("seen"):
            raise StorageError("no room")
        usual(path, content)

    patch.setattr(probe, "replace_file", full)


def _nothing(patch: pytest.MonkeyPatch) -> None:
    """All is well."""


_BREAK = {
    "nothing": _nothing,
    "products": _break_products,
    "links": _break_links,
    "shared folder": _break_shared_folder,
}
