"""Plans for a machine that was calibrated: counts times constants, times what trainings have shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from calibrated import ENTRY, FOUND, MACHINE
from measured_update import work_for

from kitae import catalog
from kitae.model.memory import count_parameters
from kitae.plan import calibration, history, local
from kitae.plan.identity import identity
from kitae.plan.learning import UNSEEN, learn
from kitae.plan.local import PLACES, Local, counts_of, experience, family_of, key_of, local_machine
from kitae.plan.machine import here
from kitae.plan.parts import update_counts
from kitae.plan.phases import Stretch, phase_of, save_bytes
from kitae.plan.step_time import step_time
from kitae.recipe.base import Duration

DECODER = dict(catalog.preset("llama-tiny").config)
BERT = dict(catalog.preset("bert-tiny").config)
WORK = work_for(DECODER, length=64, global_batch_size=8, micro_batch_size=8)
PLACE = here(1, measure=False)


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(local, "usable_cores", lambda: 4)
    monkeypatch.setattr(local, "threads_of", lambda processes: 4 // processes)
    monkeypatch.setenv("KITAE_STATE", str(tmp_path))


def test_a_step_is_counts_times_constants():
    counts = update_counts(WORK)
    found = Local(FOUND, ()).step_time(WORK, PLACE)
    by_hand = 1e-12 * counts["product.flop"] + 1e-5 * counts["product.call"]
    assert found.products["matrices"] == pytest.approx(by_hand)
    assert found.seconds == pytest.approx(by_hand)
    assert found.spread == UNSEEN


def test_every_constant_has_a_place():
    works = [
        WORK,
        replace(WORK, precision="bf16-sr", optimizer="lamb", tensor_parallel=2, data_parallel=2),
        work_for(BERT, objective="masked-lm", length=64, global_batch_size=8, micro_batch_size=4),
    ]
    for work in works:
        names = {name.partition(".")[0] for name in counts_of(work, here(work.world, measure=False))}
        assert names <= set(PLACES)


def test_two_processes_pay_for_collectives_and_have_half_the_threads():
    both = replace(WORK, data_parallel=2)
    place = here(2, measure=False)
    counts = counts_of(both, place)
    found = Local(FOUND, ()).step_time(both, place)
    assert counts["copies.call"] > 0
    sent = counts["copies.byte"] / 3e9 + counts["copies.call"] * 2e-4
    assert found.copies == pytest.approx(sent)
    assert found.products["matrices"] == pytest.approx(
        2e-12 * counts["product.flop"] + 2e-5 * counts["product.call"]
    )
    assert counts_of(replace(WORK, tensor_parallel=2), place)["tensor.byte"] > 0


def test_more_processes_than_cores_wait_for_each_other(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local, "usable_cores", lambda: 2)
    assert Local(FOUND, ()).step_time(WORK, PLACE).seconds == pytest.approx(
        2 * (1e-12 * update_counts(WORK)["product.flop"] + 1e-5 * update_counts(WORK)["product.call"])
    )


def test_trainings_of_the_same_family_are_learned_from():
    """The entry's updates are 1.1 s by its counts, and took 1.32 s."""
    plain = Local(FOUND, ()).step_time(WORK, PLACE)
    taught = Local(FOUND, (ENTRY,)).step_time(WORK, PLACE)
    learned = learn([1.32 / 1.1])
    assert taught.seconds == pytest.approx(plain.seconds * learned.factor)
    assert taught.spread == learned.spread < plain.spread


@pytest.mark.parametrize(
    "change",
    [
        {"family": "masked-lm"},
        {"precision": "bf16"},
        {"ranks": 2},
        {"cut": 2},
        {"machine": "another"},
        {"steps": 2},
        {"load": 9.0},
        {"actual": {"step_s": None}},
    ],
)
def test_others_and_those_that_show_too_little_are_not(change: dict):
    found = Local(FOUND, (replace(ENTRY, **change),)).learned(key_of(WORK, MACHINE.key))
    assert found == learn([])


def test_a_new_calibration_reads_old_trainings_anew():
    twice = replace(
        FOUND, speeds=tuple(replace(one, constants={"product.flop": 2.4e-12}) for one in FOUND.speeds)
    )
    assert Local(twice, (ENTRY,)).ratio(ENTRY) == pytest.approx(1.32 / 2.4)


def test_this_machine_is_planned_by_its_calibration_once_there_is_one():
    assert local_machine(1).local is None
    calibration.save(replace(FOUND, machine=identity()))
    found = local_machine(1)
    assert found.local is not None
    assert found.peak == {"fp32": 4e11, "bf16": 8e11}
    # 300 MB/s of disk and 1.8 GB/s of SHA-256, one after the other; 12 bytes a parameter, 10 in bf16 alone.
    assert found.save_bytes_per_s == pytest.approx(1 / (1 / 3e8 + 1 / 1.8e9))
    parameters = count_parameters(WORK.parameters)
    phase = phase_of(Stretch(None, WORK, Duration(4, "steps")), found, None)
    assert phase.save_s == pytest.approx(12 * parameters / found.save_bytes_per_s)
    assert save_bytes(replace(WORK, precision="bf16-sr")) == 10 * parameters
    before = step_time(WORK, found)
    history.append([replace(ENTRY, **experience(WORK, found), actual={"step_s": 2 * before.seconds})])
    after = step_time(WORK, local_machine(1))
    assert after.seconds == pytest.approx(before.seconds * learn([2.0]).factor)
    lines = list(local_machine(1).local.assumptions(WORK))
    assert "measured on 2026-11-30" in lines[0]
    assert "learned from 1 trainings here (decoder, fp32, 1 process)" in lines[1]


def test_families():
    masked = work_for(BERT, objective="masked-lm", length=64, global_batch_size=8, micro_batch_size=4)
    assert (family_of(WORK), family_of(masked)) == ("decoder", "masked-lm")
