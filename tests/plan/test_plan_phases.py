"""Rows 33 and 39, T48: tokens, evaluations, saves and all that is paid for, by hand."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from kitae import catalog
from kitae.errors import RecipeError
from kitae.model.memory import count_parameters
from kitae.plan.estimate import estimate
from kitae.plan.facts import as_json, assumptions
from kitae.plan.machine import rented
from kitae.plan.money import Rent
from kitae.plan.phases import Phase, Stretch, failures_of, phase_of
from kitae.plan.published import published_rows
from kitae.recipe.base import Duration

EIGHT = next(row.work for row in published_rows() if row.name.startswith("Llama 3.1 8B, 4 nodes"))
FOUR = rented(catalog.instance("trn1.32xlarge"), 4)
HUNDRED = Duration(100, "steps")


def test_tokens_of_an_update_are_those_of_all_copies_and_micro_batches():
    """T48: 4 micro-batches of 2 rows of 128 tokens on 2 copies in 1.0 s are 2,048 a second."""
    work = replace(EIGHT, rows=2, length=128, global_rows=16, data_parallel=2)
    time = phase_of(Stretch(None, work, HUNDRED), FOUR, None).time
    one_s = replace(time, **dict.fromkeys(("weights", "dropout", "tensor_parallel", "copies"), 0.0))
    one_s = replace(one_s, products={"all": 1.0}, optimizer=0.0, idle=0.0, host=0.0)
    phase = Phase(None, work, 100, 1, one_s)
    assert work.micro_batches == 4
    assert phase.tokens_per_step == 2_048
    assert phase.tokens_per_day == 2_048 * 86_400


def test_saves_and_evaluations_are_counted_with_those_at_the_ends():
    stretch = Stretch(None, EIGHT, HUNDRED, Duration(30, "steps"), Duration(50, "steps"), heldout_rows=512)
    phase = phase_of(stretch, FOUR, None)
    assert (phase.saves, phase.looks) == (4, 4)
    # 12 bytes a parameter at 0.5 GB/s; of an update of 1,024 rows, a third is forward.
    assert phase.save_s == pytest.approx(4 * 8_030_261_248 * 12 / 5e8)
    assert count_parameters(EIGHT.parameters) == 8_030_261_248
    busy = phase.time.seconds - phase.time.host - phase.time.copies - phase.time.optimizer
    assert phase.evaluate_s == pytest.approx(4 * busy * 512 / 1_024 / 3)
    again = phase_of(stretch._replace(work=replace(EIGHT, recompute="full", tensor_parallel=1)), FOUR, None)
    once = phase_of(stretch._replace(work=replace(EIGHT, tensor_parallel=1)), FOUR, None)
    head = once.time.products["head"] * 4 * 512 / 1_024 / 12  # the head is not computed again
    assert again.evaluate_s == pytest.approx(once.evaluate_s - head)
    assert phase_of(stretch._replace(heldout_rows=0), FOUR, None).looks == 0
    beside = phase_of(stretch._replace(saves_beside=True), FOUR, None)
    assert beside.save_s == pytest.approx(phase.save_s / 23.6)


def test_the_bill_by_phase_by_hand():
    """Four nodes at $21.50, one of them for the text; head node and FSx from the first hour to the last."""
    rent = Rent(head="r6a.12xlarge", fsx_gb=1200, prices={"r6a.12xlarge": Decimal("2.7216")})
    stretch = Stretch(None, EIGHT, HUNDRED, heldout_rows=512)
    found = estimate([stretch], FOUR, rent=rent, text_bytes=460_800_000_000)
    assert found.hours is not None
    assert found.bill is not None
    assert found.hours["prepare"] == 1.0  # 460.8 GB at 1 MB/s on each of 128 vCPU
    seconds = {name: round(length * 3600) for name, length in found.hours.items()}  # as AWS counts
    train, evaluate, save = (seconds[name] / 3600 for name in ("train", "evaluate", "checkpoint"))
    whole = sum(seconds.values()) / 3600
    by_hand = {
        "trn1.32xlarge, prepare": 21.50,
        "trn1.32xlarge, compile": 4 * 21.50 / 6,
        "trn1.32xlarge, start-up": 4 * 21.50 * 0.05,
        "trn1.32xlarge, train": 4 * 21.50 * train,
        "trn1.32xlarge, evaluate": 4 * 21.50 * evaluate,
        "trn1.32xlarge, checkpoint": 4 * 21.50 * save,
        "trn1.32xlarge, idle": 4 * 21.50 / 6,
        "r6a.12xlarge": 2.7216 * whole,
        "fsx-scratch": 1200 * 0.140 * whole / 730,
    }
    assert {line.item: float(line.usd or 0) for line in found.bill.lines} == {
        item: pytest.approx(usd, abs=0.0051) for item, usd in by_hand.items()
    }
    assert whole == pytest.approx(25 / 60 + 1 + 1 / 6 + 0.05 + train + evaluate + save + 1 / 6 + 1 / 6)
    assert float(found.bill.total or 0) == pytest.approx(sum(by_hand.values()), abs=0.05)


def test_failures_have_a_line_of_their_own():
    """1,000 updates in 10 parts, a node failing every 100 h: what Daly's model leaves, less the saves."""
    long = Stretch(None, EIGHT, Duration(1000, "steps"), Duration(111, "steps"))
    calm, rough = (estimate([long], FOUR, mtbf_hours=hours) for hours in (float("inf"), 100.0))
    assert calm.hours is not None
    assert rough.hours is not None
    assert "failures" not in calm.hours
    (phase,) = rough.phases
    assert phase.saves == 10
    failures = failures_of(EIGHT, 4, 100.0, False)
    assert failures.mtbf_s == 25 * 3600
    whole = calm.hours["train"] / failures.goodput(calm.hours["train"] * 3600 / 10)
    spent = rough.hours["train"] + rough.hours["checkpoint"] + rough.hours["failures"]
    assert spent == pytest.approx(whole)
    assert rough.bill is not None
    assert any(line.item == "trn1.32xlarge, failures" for line in rough.bill.lines)
    assert "a node fails every 100 h, and one of all every 25.0 h" in assumptions(rough)


def test_what_would_never_end_is_refused():
    long = estimate([Stretch(None, EIGHT, Duration(1000, "steps"))], FOUR, mtbf_hours=5.0)
    with pytest.raises(RecipeError, match=r"would fail every 75.0 min, .* checkpoint.every to"):
        assert long.hours


def test_what_is_not_known_of_the_text_is_said():
    known = estimate([Stretch(None, EIGHT, HUNDRED)], FOUR, text_bytes=1_000_000)
    assert any("1,000,000 bytes of text at 1 MB/s a core" in line for line in assumptions(known))
    unknown = estimate([Stretch(None, EIGHT, HUNDRED)], FOUR)
    assert any("its preparation is not counted" in line for line in assumptions(unknown))
    assert "prepare" not in as_json(unknown)["hours"]
    ready = estimate([Stretch(None, EIGHT, HUNDRED)], FOUR, text_bytes=0)
    assert "the text is prepared" in assumptions(ready)
