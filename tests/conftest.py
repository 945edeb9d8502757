"""What the tests of several rooms need."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none."""
    marked = [item for item in items if item.get_closest_marker("cuda")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="torch sees no CUDA device"))


@pytest.fixture(autouse=True)
def prices_of_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tests see the prices that come with kitae, whatever the one who runs them has refreshed."""
    monkeypatch.setattr("kitae.catalog.refreshed.state_folder", lambda: tmp_path / "nobodys-state")


@pytest.fixture
def mount_small(tmp_path: Path) -> Iterator[Callable[[Path, int], Path]]:
    """Mount a file system of so many KiB on a folder, which is made; skips the test where that is refused."""
    mounted: list[Path] = []

    def mount(folder: Path, size_kib: int) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", folder]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"mounting a small tmpfs is refused here: {error}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", folder], check=True)
