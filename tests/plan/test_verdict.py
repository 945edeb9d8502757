"""Row 42: whether it fits a process and its host, and the nearest changes."""

from __future__ import annotations

from dataclasses import replace

from kitae import catalog
from kitae.plan.machine import rented
from kitae.plan.published import published_rows
from kitae.plan.verdict import judge

EIGHT = next(row.work for row in published_rows() if row.name.startswith("Llama 3.1 8B, 4 nodes"))


def test_8b_over_32_processes_fits_four_nodes():
    found = judge(EIGHT, rented(catalog.instance("trn1.32xlarge"), 4))
    assert found.word == "fits"
    # Of a layer: 4 x 128 rows or columns of heads, 3 x 448 inner ones, 2 norms; 2 x 4,008 of the vocabulary.
    local = 4096 * (32 * (4 * 128 + 3 * 448 + 2) + 2 * 4008 + 1)
    state = found.memory.state
    assert (state["parameters"], state["gradients"]) == (2 * local, 4 * local)
    assert state["master"] + state["optimizer"] == 12 * local // 4


def test_8b_does_not_fit_a_small_instance_and_what_would():
    one = replace(EIGHT, tensor_parallel=1, data_parallel=2, sequence_parallel=False)
    found = judge(one, rented(catalog.instance("trn1.2xlarge"), 1))
    assert found.word == "does not fit"
    assert found.memory.state["gradients"] == 4 * 8_030_261_248
    assert found.changes == (
        "parallel.tensor_parallel_size=8 with parallel.sequence_parallel=true on --instance trn1.32xlarge",
    )


def test_the_nearest_change_of_each_kind():
    big = replace(EIGHT, rows=64)
    found = judge(big, rented(catalog.instance("trn1.32xlarge"), 4))
    assert found.word == "does not fit"
    assert any(line.startswith("training.micro_batch_size=") for line in found.changes)
    rows = int(next(line for line in found.changes if "micro_batch" in line).partition("=")[2])
    machine = rented(catalog.instance("trn1.32xlarge"), 4)
    assert judge(replace(big, rows=rows), machine).word == "fits"
    assert judge(replace(big, rows=rows * 2), machine).word != "fits"


def test_tight_is_above_four_fifths():
    machine = rented(catalog.instance("trn1.32xlarge"), 4)
    used = judge(EIGHT, machine).device_used
    assert judge(EIGHT, replace(machine, device_bytes=int(used / 0.79))).word == "fits"
    assert judge(EIGHT, replace(machine, device_bytes=int(used / 0.9))).word == "tight"
    assert judge(EIGHT, replace(machine, device_bytes=int(used / 1.1))).word == "does not fit"
