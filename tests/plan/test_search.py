"""The found way is never worse than the best of all ways, and knows what it is better than."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae import catalog
from kitae.model.tables import parse_config
from kitae.plan.machine import rented
from kitae.plan.money import Rent
from kitae.plan.phases import Stretch, phase_of
from kitae.plan.published import published_rows
from kitae.plan.search import (
    MODES,
    Search,
    bound,
    cheapest,
    fastest,
    is_allowed,
    next_best,
    node_counts,
)
from kitae.plan.verdict import TIGHT, judge
from kitae.recipe.base import Duration

ROWS = {row.name: row for row in published_rows()}
EIGHT = ROWS["Llama 3.1 8B, 4 nodes (second step)"].work
BERT = ROWS["BERT-Large 128, 1 node, AdamW"].work
TRN1 = catalog.instance("trn1.32xlarge")


def searched(work, most: int = 4, length: int = 50, **rent) -> Search:
    whole = replace(work, tensor_parallel=1, data_parallel=1, sequence_parallel=False, zero1=False, rows=1)
    return Search((Stretch(None, whole, Duration(length, "steps")),), most, Rent(**rent))


def every_way(search: Search, instance) -> list[tuple[float, int]]:
    """Seconds and nodes of all that fits, each tried by itself."""
    stretch, found = search.stretches[0], []
    for nodes, size, rows, mode, zero1, sequence in product(
        node_counts(instance, search.most_nodes),
        range(1, 65),
        range(1, stretch.work.global_rows + 1),
        MODES,
        (False, True),
        (False, True),
    ):
        copies, rest = divmod(nodes * instance.devices, size)
        if instance.backend == "xla" and size not in (1, 2, 8, 32, 64):  # no ring of them
            continue
        if rest or not is_allowed(stretch.work, size) or stretch.work.global_rows % max(1, copies * rows):
            continue
        if not copies or (size > instance.devices and size % instance.devices):
            continue
        if sequence and (size == 1 or rows * stretch.work.length % size):
            continue
        work = replace(
            stretch.work,
            tensor_parallel=size,
            data_parallel=copies,
            rows=rows,
            recompute=mode,
            zero1=zero1,
            sequence_parallel=sequence,
        )
        machine = rented(instance, nodes)
        if judge(work, machine, advise=False).share <= TIGHT:
            phase = phase_of(stretch._replace(work=work), machine, None)
            found.append(((phase.steps or 0) * phase.time.seconds + phase.save_s, nodes))
    return found


@settings(max_examples=25, deadline=None)
@given(
    hidden=st.sampled_from([1024, 2048, 4096]),
    layers=st.integers(4, 40),
    rows=st.sampled_from([6, 8, 12, 16, 32]),
    length=st.sampled_from([512, 1024, 4096]),
    name=st.sampled_from(["trn1.2xlarge", "g5.xlarge", "p4de.24xlarge"]),
)
def test_nothing_that_fits_is_better(hidden: int, layers: int, rows: int, length: int, name: str):
    shape = {"hidden_size": hidden, "num_hidden_layers": layers, "intermediate_size": 4 * hidden}
    shape |= {"num_attention_heads": hidden // 128, "num_key_value_heads": hidden // 256}
    config = parse_config({**catalog.preset("llama2-7b").config, **shape, "head_dim": 128})
    instance = catalog.instance(name)
    work = replace(EIGHT, config=config, global_rows=rows, length=length, backend=instance.backend)
    search = searched(work, most=2)
    ways, every = list(search.ways(instance)), every_way(search, instance)
    assert bool(ways) == bool(every)
    if every:
        best, cheap = fastest(ways), cheapest(ways)
        assert best is not None
        assert best.train_s == pytest.approx(min(seconds for seconds, _ in every))
        assert cheap is not None
        around = {"xla": 600 + 180 + 600, "cuda": 60 + 70 + 600}[instance.backend]
        price = float(catalog.price_of(name).usd)
        least = min(nodes * (seconds + around) for seconds, nodes in every) / 3600 * price
        assert cheap.usd == pytest.approx(least)


def test_which_numbers_of_nodes_are_looked_at():
    assert node_counts(TRN1, 64) == [1, 2, 4, 8, 16, 32, 64]
    assert node_counts(TRN1, 6) == [1, 2, 4, 6]
    assert node_counts(catalog.instance("trn1.2xlarge"), 64) == [1]


def test_trainium1_has_rings_of_some_sizes():
    assert {way.tensor_parallel for way in searched(EIGHT, 2).ways(TRN1)} == {8, 32}
    gpus = searched(replace(EIGHT, backend="cuda"), 1).ways(catalog.instance("p4de.24xlarge"))
    assert {way.tensor_parallel for way in gpus} >= {4, 8}


def test_the_same_twice():
    first, second = (list(searched(EIGHT).ways(TRN1)) for _ in range(2))
    assert first == second
    assert cheapest(first) == cheapest(second)


def test_8b_has_a_way_on_every_number_of_nodes_and_all_fit():
    ways = list(searched(EIGHT, 64).ways(TRN1))
    assert {way.nodes for way in ways} == {1, 2, 4, 8, 16, 32, 64}
    for way in ways[::7]:
        work = way.works[0]
        assert work.world == way.nodes * 32
        assert 1024 % (work.data_parallel * work.rows) == 0
        assert judge(work, rented(TRN1, way.nodes)).word == "fits"
    quick = fastest(ways)
    assert quick is not None
    assert quick.nodes == 64
    assert (quick.tensor_parallel, quick.zero1) != (32, False)


def test_the_price_is_the_bills():
    rent = {"head": "r6a.12xlarge", "fsx_gb": 1200, "prices": {"r6a.12xlarge": Decimal("2.7216")}}
    search = searched(EIGHT, 2, **rent)
    for way in list(search.ways(TRN1))[:5]:
        from kitae.plan.estimate import estimate

        stretch = search.stretches[0]._replace(work=way.works[0])
        found = estimate([stretch], rented(TRN1, way.nodes), rent=search.rent)
        assert found.bill is not None
        assert way.usd == pytest.approx(float(found.bill.total or 0), abs=0.06)
        assert way.train_s == pytest.approx(found.train_s())


def test_a_copy_that_one_node_cannot_hold_takes_whole_ones():
    big = ROWS["Llama 3.1 70B, 32 nodes"].work
    ways = list(searched(replace(big, pipeline=1), 16).ways(TRN1))
    assert {(way.tensor_parallel, way.nodes) for way in ways} == {(64, 8), (64, 16)}
    assert bound(ways[0], rented(TRN1, 16))[0] == "collectives of tensor parallelism"


def test_an_unknown_price_leaves_the_fastest():
    ways = list(searched(replace(EIGHT, backend="neuron"), 1).ways(catalog.instance("trn2.48xlarge")))
    assert cheapest(ways) is None
    assert fastest(ways) is not None


def test_what_bounds_it_and_what_the_next_best_loses():
    ways = list(searched(EIGHT, 4).ways(TRN1))
    best = fastest(ways)
    assert best is not None
    part, share = bound(best, rented(TRN1, best.nodes))
    assert part == "matrix products"
    assert 0.3 < share < 1
    losses = {name: loss for name, _, loss in next_best(best, ways, lambda way: way.train_s)}
    assert set(losses) >= {"nodes", "parallel.tensor_parallel_size", "parallel.zero1"}
    assert all(loss >= 0 for loss in losses.values())
    assert losses["nodes"] > 0.5  # half the nodes, nearly twice the time


def test_two_phases_have_micro_batches_of_their_own():
    whole = replace(BERT, tensor_parallel=1, data_parallel=1, rows=1)
    long = replace(whole, length=512, predictions=80, global_rows=32_768)
    stretches = (Stretch("a", whole, Duration(9, "steps")), Stretch("b", long, Duration(3, "steps")))
    best = fastest(list(Search(stretches, 1, Rent()).ways(TRN1)))
    assert best is not None
    assert best.rows[0] > best.rows[1]
