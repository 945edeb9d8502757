"""What was measured of a machine is kept, replaced as a whole, and read for the right machine alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from calibrated import FOUND, MACHINE

from kitae.plan.calibration import load, path_of, save
from kitae.plan.identity import identity, threads_of


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KITAE_STATE", str(tmp_path))
    return tmp_path


def test_what_is_saved_is_loaded():
    assert load(MACHINE) is None
    save(FOUND)
    assert load(MACHINE) == FOUND
    assert load(replace(MACHINE, torch="2.9.1")) is None


def test_a_second_one_replaces_the_first():
    save(FOUND)
    later = replace(FOUND, memory_bytes_per_s=1.0)
    save(later)
    assert load(MACHINE) == later
    assert len(list(path_of(MACHINE).parent.iterdir())) == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 1}', '{"format": 0}'])
def test_a_broken_file_or_one_of_another_format_is_as_none(text: str):
    path = path_of(MACHINE)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert load(MACHINE) is None


def test_constants_are_of_the_nearest_threads_and_only_numbers_scale():
    assert FOUND.constants("fp32", 4, 1) == {"product.flop": 1e-12, "product.call": 1e-5}
    assert FOUND.constants("fp32", 2, 2) == {"product.flop": 2e-12, "product.call": 2e-5}
    assert FOUND.constants("fp32", 1, 4) == {"product.flop": 4e-12, "product.call": 2e-5}
    assert FOUND.constants("bf16-sr", 4, 1) == FOUND.constants("bf16", 4, 1) == {"product.flop": 5e-13}


def test_of_as_many_threads_those_of_as_many_processes_count():
    alone = replace(FOUND.speeds[0], threads=2, constants={"product.flop": 9e-12})
    both = replace(FOUND, speeds=(alone, *FOUND.speeds[1:]))
    assert both.constants("fp32", 2, 1) == {"product.flop": 9e-12}
    assert both.constants("fp32", 2, 2)["product.flop"] == 2e-12
    assert both.constants("fp32", 1, 3)["product.flop"] == 4e-12


def test_what_was_not_measured_in_time_is_taken_from_the_next_precision():
    only = replace(FOUND, speeds=FOUND.speeds[:2])
    assert not only.is_whole
    assert only.constants("autocast", 4, 1) == only.constants("bf16", 4, 1) == FOUND.constants("fp32", 4, 1)
    assert FOUND.constants("autocast", 4, 1) == {"product.flop": 5e-13}


def test_the_peak_is_that_of_the_fastest_product():
    assert FOUND.peak("fp32", 4) == 4e11
    assert FOUND.peak("fp32", 2) == 2e11
    assert FOUND.peak("bf16-sr", 4) == 8e11


def test_a_machine_is_known_by_what_its_speed_depends_on(monkeypatch: pytest.MonkeyPatch):
    here = identity()
    assert here.cores >= 1
    assert here.memory_gib >= 1
    assert here.key != MACHINE.key == replace(MACHINE).key
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads_of(1) == 3
    assert threads_of(2) == 3  # as each rank has it
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert threads_of(2) == max(1, here.cores // 2)
