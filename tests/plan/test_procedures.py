"""What people saw who followed the vendor's articles by hand, against the plan of the same."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest

from kitae import catalog
from kitae.model.memory import count_parameters
from kitae.plan.estimate import estimate
from kitae.plan.machine import rented
from kitae.plan.phases import WARM_UP_S, Stretch
from kitae.plan.published import published_rows
from kitae.recipe.base import Duration

ROWS = {row.name: row for row in published_rows()}
HOUR = 3600


@pytest.mark.parametrize(
    ("row", "steps"),
    [
        ("BERT-Large 128, 16 nodes, AdamW, strong, autocast", 28_125),
        ("BERT-Large 128, 16 nodes, LAMB, weak", 7_032 * 65_536 // 1_048_576),
    ],
)
def test_phase_1_of_bert_on_16_nodes_takes_under_8_hours(row: str, steps: int):
    found = estimate([Stretch("seq128", ROWS[row].work, Duration(steps, "steps"))], ROWS[row].machine)
    longest = found.train_s(1)
    assert longest is not None
    assert 2 * HOUR < longest < 8 * HOUR


def test_the_checkpoint_of_bert_is_as_large_as_it_was_seen():
    """4.16 GB: weights and two moments in fp32."""
    row = ROWS["BERT-Large 128, 1 node, AdamW"]
    assert count_parameters(row.work.parameters) * 12 / 1e9 == pytest.approx(4.16, rel=0.05)


def test_the_log_of_two_steps_of_8b_on_four_nodes():
    """4.62 and 5.33 sequences a second: means since the start, and the first step loads graphs."""
    row = ROWS["Llama 3.1 8B, 4 nodes (second step)"]
    step = estimate([Stretch(None, row.work, Duration(2, "steps"))], row.machine).phases[0].time
    for seconds, within in ((step.seconds, 0.06), *((end, 0.25) for end in step.interval)):
        passed = accumulate((seconds + WARM_UP_S["xla"], seconds))
        logged = [row.work.global_rows * done / time for done, time in enumerate(passed, 1)]
        assert logged == pytest.approx([4.62, 5.33], rel=within)


@pytest.mark.parametrize(
    ("row", "seconds"),
    [
        ("1 process, fp32", 585.1),
        ("2 processes, fp32", 345.2),
        ("1 process, bf16-sr", 406.4),
        ("2 processes, bf16-sr", 268.3),
    ],
)
def test_ten_epochs_of_the_japanese_classifier_take_as_long_as_they_did(row: str, seconds: float):
    work, machine = ROWS[f"BERT-Base classifier, {row}"].work, rented(catalog.instance("trn1.2xlarge"), 1)
    found = estimate([Stretch(None, work, Duration(10, "epochs"))], machine, rows=4_000)
    assert found.steps == 10 * 4_000 // work.global_rows
    low, high = found.train_s(0), found.train_s(1)
    assert low is not None
    assert high is not None
    assert low < seconds < high


def test_strong_and_weak_scaling_of_bert_over_16_nodes():
    """43 % (3,530 -> 24,518) and 94 % (3,827 -> 57,408 sequences a second)."""
    one = ROWS["BERT-Large 128, 1 node, AdamW"]
    for name, seen in (("AdamW, strong, autocast", 24_518 / 3_530), ("LAMB, weak", 57_408 / 3_827)):
        many = ROWS[f"BERT-Large 128, 16 nodes, {name}"]
        assert many.predicted() / one.predicted() == pytest.approx(seen, rel=0.1)


def test_short_updates_wait_for_the_host():
    row = ROWS["BERT-Base classifier, 2 processes, bf16-sr"]
    alone = estimate([Stretch(None, row.work, Duration(1, "steps"))], row.machine).phases[0].time
    assert 0.4 < alone.host / alone.seconds < 0.6
    whole = replace(row.work, global_rows=16_384)
    many = estimate([Stretch(None, whole, Duration(1, "steps"))], row.machine).phases[0].time
    assert many.host / many.seconds < 0.01
