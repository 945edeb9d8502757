"""What plans said against what came: errors, intervals and the families' summary, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from calibrated import ENTRY, FOUND

from kitae.plan import local
from kitae.plan.learning import learn
from kitae.plan.local import Local
from kitae.plan.record import Held, families, held, is_inside

INTERVAL = {"step_s": 1.0, "step_s_low": 0.8, "step_s_high": 1.4}


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "usable_cores", lambda: 4)


def test_errors_are_shares_of_what_came():
    found = held(ENTRY)
    assert found["step_s"].error == pytest.approx(1.0 / 1.32 - 1)
    assert found["memory_bytes"].error == pytest.approx(1e9 / 1.1e9 - 1)
    assert found["checkpoint_s"] == Held(None, None)
    assert found["checkpoint_s"].error is None


def test_inside_or_not():
    assert is_inside(ENTRY) is None
    assert is_inside(replace(ENTRY, predicted=INTERVAL)) is True
    assert is_inside(replace(ENTRY, predicted=INTERVAL, actual={"step_s": 1.5})) is False


def test_families_are_summed_up_apart():
    entries = [
        replace(ENTRY, predicted=INTERVAL, actual={"step_s": 1.25}),
        replace(ENTRY, predicted=INTERVAL, actual={"step_s": 2.0}),
        replace(ENTRY, family="masked-lm"),
        replace(ENTRY, machine="another"),
    ]
    first, masked, other = families(entries, Local(FOUND, entries))
    assert (first.trainings, first.inside, first.foreseen) == (2, 1, 2)
    assert first.mean_error == pytest.approx((0.2 + 0.5) / 2)
    assert first.learned == learn([1.25 / 1.1, 2.0 / 1.1])
    assert masked.learned == learn([1.32 / 1.1])
    assert other.learned is None
    assert families(entries, None)[0].learned is None
