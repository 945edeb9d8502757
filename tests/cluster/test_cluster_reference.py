"""docs/cluster-file.md is the schema's."""

from __future__ import annotations

from pathlib import Path

from kitae.cluster.check import RULES
from kitae.cluster.reference import reference_markdown


def test_the_page_is_current_and_names_every_rule():
    page = (Path(__file__).parents[2] / "docs/cluster-file.md").read_text("utf-8")
    assert page == reference_markdown(), "run `make docs`"
    assert all(f"| `{rule}` | " in page for rule in RULES)
    assert all((rule.__doc__ or "").strip() for rule in RULES.values())
