"""The form that graphs take, which is the same on all ranks: real ranks get the same numbers by it.

The device is a CPU that is said to collect graphs, so that gloo can carry what a Trainium would.
"""

from unittest.mock import patch

import pytest
import torch
from parallel_cases import decoder_layouts_of
from ranks import run_ranks

from kitae.backend.group import ALONE
from kitae.errors import TrainingError
from kitae.parallel import copies, gradients, grid, held, region, shares
from kitae.parallel.copies import check_copies
from kitae.parallel.gradients import global_norm, sum_copies
from kitae.parallel.region import Vocabulary, region_of
from kitae.parallel.shares import Shares


class Graphs:
    """While it lasts, every device collects graphs, and no number of neighbours is a ring."""

    def __enter__(self):
        self.patches = [patch.object(room, "in_graph", lambda device: True) for room in ROOMS]
        self.patches.append(patch.object(grid, "RINGS", ()))
        for one in self.patches:
            one.start()

    def __exit__(self, *error):
        for one in self.patches:
            one.stop()


ROOMS = (copies, gradients, held, region, shares)


def own_gradients(mesh, layouts):
    random = torch.Generator().manual_seed(mesh.tensor.rank)
    return {one.name: torch.randn(one.shape, generator=random) for one in layouts}


def both_ways(mesh, sharded):
    """Sums and norm of the gradients of this rank's rows, at once and as a graph."""
    whole = Shares(decoder_layouts_of(mesh.tensor.size, mesh.tensor.rank), ALONE)
    own = Shares(decoder_layouts_of(mesh.tensor.size, mesh.tensor.rank), mesh.data if sharded else ALONE)
    given = {name: own.cut(name, one) for name, one in own_gradients(mesh, whole.layouts).items()}
    found = []
    for graph in (False, True):
        mine = {name: one.clone() for name, one in given.items()}
        if graph:
            with Graphs():
                sum_copies(mine, own.layouts, mesh, sequence_parallel=True)
                norm = global_norm(mine, own.layouts, mesh, sharded)
        else:
            sum_copies(mine, own.layouts, mesh, sequence_parallel=True)
            norm = global_norm(mine, own.layouts, mesh, sharded)
        found.append((mine, norm.item()))
    return found


@pytest.mark.parametrize(("tp_size", "sharded"), [(4, False), (2, True)])
def test_sums_and_norm_are_the_same(tp_size, sharded):
    """Tp 4 with two KV heads, which two ranks hold each; tp 2 x dp 2 with shares of rows."""
    for (at_once, norm), (as_graph, other) in run_ranks(4, both_ways, sharded, tp_size=tp_size):
        assert at_once.keys() == as_graph.keys()
        assert all(torch.equal(one, as_graph[name]) for name, one in at_once.items())
        assert other == pytest.approx(norm, rel=1e-6)


def sizes(mesh):
    """Bytes of the collectives of sums, by rank: the shares of rank 0 hold no KV head, others do."""
    own = Shares(decoder_layouts_of(mesh.tensor.size, mesh.tensor.rank), mesh.data)
    given = {one.name: torch.ones(one.shape) for one in own.layouts}
    mesh.meter.taken.clear()
    with Graphs():
        sum_copies(given, own.layouts, mesh, sequence_parallel=True)
    return sorted((call.kind, call.bytes_in) for call in mesh.meter.taken)


def test_all_ranks_exchange_as_much():
    found = run_ranks(4, sizes, tp_size=2)
    assert all(one == found[0] for one in found)


def parts_of_a_region(mesh):
    """Own tokens, what counts once, and the rows of a vocabulary of 7, the last of which is padding."""
    tokens = torch.arange(16.0).view(8, 2)
    vocabulary = Vocabulary(mesh.tensor, 2 * mesh.tensor.rank, min(2, 7 - 2 * mesh.tensor.rank))
    ids, logits = torch.tensor([0, 3, 6, -100]), torch.ones(4, 2)
    found = []
    for graph in (False, True):
        with Graphs() if graph else patch.object(grid, "RINGS", grid.RINGS):
            one = region_of(mesh.tensor, True)
            leaf = torch.ones(3, requires_grad=True)
            one.once(leaf).sum().backward()
            found.append(
                [one.own(tokens), leaf.grad, *vocabulary.locate(ids), vocabulary.hide_padding(logits.clone())]
            )
    return found


def test_a_region_is_the_same():
    for at_once, as_graph in run_ranks(4, parts_of_a_region, tp_size=4):
        for one, other in zip(at_once, as_graph, strict=True):
            assert torch.equal(one, other)


def rows_to_read(mesh):
    layouts = decoder_layouts_of(1, 0)
    own, whole = Shares(layouts, mesh.data), own_gradients(mesh, layouts)
    with Graphs():
        taken = {name: own.take(name, one) for name, one in whole.items()}
    return all(torch.equal(one, own.cut(name, whole[name])) for name, one in taken.items())


@pytest.mark.parametrize("world", [2, 4])
def test_own_rows_are_the_same(world):
    """6 and 24 rows: on 4 ranks the norm's are not equally many."""
    assert run_ranks(world, rows_to_read) == [True] * world


def compared(mesh, damaged):
    own = Shares(decoder_layouts_of(mesh.tensor.size, mesh.tensor.rank), mesh.data)
    tensors = {one.name: torch.ones(one.shape) for one in own.layouts}
    if mesh.rank == damaged:
        tensors["norm"][0] = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    mesh.meter.taken.clear()
    with Graphs():
        try:
            check_copies(tensors, own.layouts, mesh, sharded=True)
        except TrainingError as error:
            return str(error), len(mesh.meter.taken)
    return "", len(mesh.meter.taken)


def test_copies_are_compared_on_the_host():
    """Whoever differs, all ranks hear of it; no collective of the device is needed."""
    assert run_ranks(4, compared, -1, tp_size=2) == [("", 0)] * 4
    for says, collectives in run_ranks(4, compared, 3, tp_size=2):
        assert "the same part of model.norm.weight" in says
        assert not collectives
