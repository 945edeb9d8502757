"""Row 16: a training that may cross the end of a capacity block is refused."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from kitae import catalog
from kitae.errors import RecipeError
from kitae.plan.estimate import estimate
from kitae.plan.machine import rented
from kitae.plan.phases import Stretch
from kitae.plan.published import published_rows
from kitae.plan.window import longest_s, moment, refuse_after
from kitae.recipe.base import Duration

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=timezone.utc)
EIGHT = next(row.work for row in published_rows() if row.name.startswith("Llama 3.1 8B, 4 nodes"))


def planned(duration: Duration):
    machine = rented(catalog.instance("trn1.32xlarge"), 4)
    return estimate([Stretch(None, EIGHT, duration)], machine)


def test_the_longest_time_counts_with_compilation_and_start():
    found = planned(Duration(100, "steps"))
    longest = longest_s(found)
    assert longest == pytest.approx(780 + found.train_s(1))
    refuse_after(found, None, NOW)
    refuse_after(found, NOW + timedelta(seconds=longest + 1), NOW)
    with pytest.raises(RecipeError, match=r"it may take .* until 2026-12-01 13:00 UTC 60\.0 min are left"):
        refuse_after(found, NOW + timedelta(hours=1), NOW)
    with pytest.raises(RecipeError, match="that has passed"):
        refuse_after(found, NOW - timedelta(hours=1), NOW)


def test_a_time_limit_that_crosses_the_end_is_refused():
    """Row 16: the block ends in 12 hours, the job may take 24."""
    short, end = planned(Duration(1, "steps")), NOW + timedelta(hours=12)
    refuse_after(short, end, NOW, "11:59:00")
    with pytest.raises(RecipeError, match=r"target.time_limit \(1-00:00:00\) goes past 2026-12-02 00:00 UTC"):
        refuse_after(short, end, NOW, "1-00:00:00")
    refuse_after(short, None, NOW, "1-00:00:00")


def test_an_unknown_length_is_refused():
    with pytest.raises(RecipeError, match="in steps or tokens"):
        refuse_after(planned(Duration(2, "epochs")), NOW + timedelta(days=300), NOW)


def test_times_without_a_zone_are_in_utc():
    assert moment("2026-12-01T12:00") == moment("2026-12-01T12:00Z") == NOW
    assert moment("2026-12-01T21:00+09:00") == NOW
    with pytest.raises(RecipeError, match="is no time such as"):
        moment("soon")
