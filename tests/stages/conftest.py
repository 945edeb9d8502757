"""One tiny case a test, in a folder of its own that is also where kitae is started and caches."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from job_case import write_case


@pytest.fixture(scope="session")
def _case(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("case")
    write_case(folder)
    return folder


@pytest.fixture
def case(_case, tmp_path, monkeypatch) -> Path:
    """A folder with `recipe.yaml`, `model/` and `text/`; relative names start there."""
    folder = tmp_path / "case"
    shutil.copytree(_case, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "cache"))
    return folder
