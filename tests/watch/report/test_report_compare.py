"""Several runs beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reported_runs import HELDOUT, carried, results, write_reported

from kitae.watch.report.blocks import Chart, Report, Table, Words
from kitae.watch.report.conceal import Concealer
from kitae.watch.report.contents import names_of, report_of
from kitae.watch.report.html import page
from kitae.watch.report.paired import difference
from kitae.watch.report.run_view import RunView


def run(path: Path, loss: float, rows: np.ndarray | None = None, **changes: Any) -> Path:
    found = results(heldout={**HELDOUT, "loss_after": loss}, **changes)
    folder = write_reported(path, results__json=found)
    if rows is not None:
        (folder / "evaluations").mkdir()
        np.save(folder / "evaluations/step-00000008.npy", rows)
    return folder


def both(tmp_path: Path, losses: tuple[float, float], **changes: Any) -> Report:
    paths = [run(tmp_path / name, loss, **changes) for name, loss in zip("ab", losses, strict=True)]
    return report_of(paths, {})


def test_names_tell_runs_apart():
    assert names_of([Path("/r/a"), Path("/r/b")]) == ["a", "b"]
    assert names_of([Path("/r/x/a"), Path("/r/y/a")]) == ["x/a", "y/a"]


def test_the_best_run_by_its_held_out_loss(tmp_path: Path):
    report = both(tmp_path, (2.5, 2.25))
    assert report.verdict == ("Of 2 runs, b has the lowest held-out loss, 2.2500 nats/token: 0.2500 below a.")
    (table,) = [one for one in report.sections[0].blocks if isinstance(one, Table)]
    head = dict(zip(table.head, table.rows[0], strict=True))
    assert (head["run"], head["after"], head["change"], head["proof"]) == (
        "a",
        "2.5000",
        "-0.7500 ± 0.0312",
        "passed",
    )


def test_row_by_row_with_its_error(tmp_path: Path):
    """The numbers of two rows, of 10 and 30 tokens, by hand."""
    better = np.array([[20.0, 66.0], [10.0, 30.0]])
    worse = np.array([[22.0, 75.0], [10.0, 30.0]])
    paths = [run(tmp_path / "a", 2.425, worse), run(tmp_path / "b", 2.15, better)]
    found = difference(RunView(paths[1], jobs={}), RunView(paths[0], jobs={}))
    # Drops of 0.2 and 0.3 nats/token, mean 11/40; both rows are 0.75 nats from it.
    spread = (0.75**2 + 0.75**2) ** 0.5 / 40 * 2**0.5
    assert found == (pytest.approx(0.275), pytest.approx(spread))
    assert f"0.2750 ± {spread:.4f} below a, row by row." in report_of(paths, {}).verdict


def test_a_difference_within_its_error_is_not_clear(tmp_path: Path):
    one, other = np.array([[20.0, 66.0], [10.0, 30.0]]), np.array([[25.0, 62.0], [10.0, 30.0]])
    paths = [run(tmp_path / "a", 2.175, other), run(tmp_path / "b", 2.15, one)]
    assert report_of(paths, {}).verdict.endswith("below a, row by row, which is not clear.")


def test_other_rows_are_not_compared(tmp_path: Path):
    one, other = np.array([[20.0], [10.0]]), np.array([[25.0], [11.0]])
    views = [RunView(run(tmp_path / name, 2.0, rows), jobs={}) for name, rows in (("a", one), ("b", other))]
    assert difference(*views) is None


def test_runs_of_other_data_are_not_ranked(tmp_path: Path):
    paths = [run(tmp_path / name, 2.0, data_key=name) for name in "ab"]
    report = report_of(paths, {})
    assert "no common held-out text" in report.verdict
    assert "on different data" in str(report.sections[0])


def test_curves_together_and_everything_else_folded(tmp_path: Path):
    report = both(tmp_path, (2.5, 2.25))
    assert [one.title for one in report.sections] == ["Results", "Recipes", "Training", "a", "b"]
    charts = [one for one in report.sections[2].blocks if isinstance(one, Chart)]
    assert [one.name for one in charts[0].traces] == ["a", "a, held out", "b", "b, held out"]
    assert [one.run for one in charts[0].traces] == [0, 0, 1, 1]
    found = carried(page(report, Concealer(())))
    assert [one["run"] for one in found["runs"]] == ["a", "b"]


def test_a_recipe_that_cannot_be_read_is_no_difference(tmp_path: Path):
    paths = [run(tmp_path / name, 2.5) for name in "abc"]
    (paths[1] / "recipe.yaml").write_bytes(b"\xff: [")
    blocks = report_of(paths, {}).sections[1].blocks
    assert [str(block.text) for block in blocks if isinstance(block, Words)] == [
        "Without a recipe that can be read: b.",
        "The recipes are the same.",
    ]
