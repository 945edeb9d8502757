"""Money and time of a run, so far and at its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_runs import BEGUN_S, attempt, write_run

from kitae.watch.facts import RunFacts
from kitae.watch.outlook import Outlook, budget_of, outlook_of
from kitae.watch.state import Jobs
from kitae.watch.status import status_of

NOW = BEGUN_S + 1800
NO_JOBS: Jobs = {}


def outlook(run: Path) -> Outlook:
    return outlook_of(status_of(RunFacts.read(run), NO_JOBS, lambda _: "alive", NOW), NOW)


def test_a_run_costs_more_until_its_end(tmp_path: Path):
    """Two nodes of 36 $/h each for half an hour: 36 $; six steps of 2 s are left, at 72 $/h: 0.24 $."""
    run = write_run(tmp_path, [attempt(nodes=["a", "b"], price_per_node_hour=36.0)], steps=4)
    (run / "recipe.yaml").write_text("watch: {alarms: {budget_usd: 40}}")
    found = outlook(run)
    assert (found.cost_usd, found.price_per_hour, found.seconds_left) == (36.0, 72.0, 12.0)
    assert found.cost_end_usd == pytest.approx(36.24)
    assert found.ends_at == NOW + 12
    assert (found.budget_usd, found.budget_left_usd) == (40.0, 4.0)


def test_a_run_that_has_ended_costs_what_it_cost(tmp_path: Path):
    run = write_run(tmp_path, [attempt("finished", price_per_node_hour=36.0)], steps=10)
    found = outlook(run)
    assert (found.cost_usd, found.cost_end_usd) == (36.0, 36.0)
    assert (found.seconds_left, found.ends_at, found.price_per_hour) == (None, None, None)


def test_without_a_price_there_is_time_alone(tmp_path: Path):
    found = outlook(write_run(tmp_path, [attempt()], steps=4))
    assert found == Outlook(seconds_left=12.0, ends_at=NOW + 12)
    assert found.budget_left_usd is None


def test_before_the_first_step_the_end_is_not_known(tmp_path: Path):
    found = outlook(write_run(tmp_path, [attempt(price_per_node_hour=36.0)]))
    assert (found.cost_usd, found.cost_end_usd, found.ends_at) == (18.0, None, None)


def test_the_budget_is_that_of_the_recipe(tmp_path: Path):
    assert budget_of(tmp_path) is None
    (tmp_path / "submitted.yaml").write_text("watch: {alarms: {budget_usd: 12.5}}")
    assert budget_of(tmp_path) == 12.5
    (tmp_path / "recipe.yaml").write_text("watch: {alarms: {}}")
    assert budget_of(tmp_path) is None
    (tmp_path / "recipe.yaml").write_text("{")
    assert budget_of(tmp_path) is None
