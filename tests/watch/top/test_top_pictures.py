"""The pictures in the manual show the screen as it is."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from top_pictures import IMAGES, pictures, words

ROOT = Path(__file__).parents[3]


def test_the_manual_shows_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """All that can be read in a picture; draw them anew with `python tests/support/top_pictures.py`."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")
    now = pictures()
    assert {f"{name}.svg" for name in now} == {path.name for path in IMAGES.glob("top-*.svg")}
    for name, svg in now.items():
        assert words((IMAGES / f"{name}.svg").read_text("utf-8")) == words(svg), name
    monkeypatch.undo()
    time.tzset()


def test_each_picture_is_in_the_manual():
    pages = "".join(path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md"))
    for path in IMAGES.glob("top-*.svg"):
        assert f"images/{path.name}" in pages
