import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import run_ranks

from kitae.backend.group import ALONE, Group
from kitae.errors import RecipeError
from kitae.parallel.region import UNCUT, WHOLE_VOCABULARY, Vocabulary, region_of

TOKENS, WIDTH = 8, 3


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def own(tensor, mesh, sequence_parallel):
    """What the token-wise side of this rank holds of [TOKENS, ...]."""
    return tensor.chunk(mesh.tensor.size)[mesh.tensor.rank].clone() if sequence_parallel else tensor.clone()


def both_ways(mesh, sequence_parallel):
    """Enter, times what only this rank has, leave, times the token-wise result: values and gradients."""
    region, rank = region_of(mesh.tensor, sequence_parallel), mesh.tensor.rank
    before = mesh.meter.calls.copy()
    x = own(random(TOKENS, WIDTH), mesh, sequence_parallel).requires_grad_()
    entered = region.enter(x)
    total = region.leave(entered * (rank + 1))
    upstream = own(random(TOKENS, WIDTH, seed=1), mesh, sequence_parallel)
    total.backward(upstream)
    return entered.detach(), total.detach(), x.grad, dict(mesh.meter.calls - before)


def once_for_all(mesh, sequence_parallel):
    """What each rank gives a gradient for when all compute the same from the same, and its own tokens."""
    region = region_of(mesh.tensor, sequence_parallel)
    x = own(random(TOKENS, WIDTH), mesh, sequence_parallel).requires_grad_()
    entered = region.enter(x)
    entered.retain_grad()
    total = region.once(entered.square().sum()[None])
    total.sum().backward()
    return entered.grad, x.grad, region.own(random(TOKENS, WIDTH))


def everything(mesh):
    """In a rank: what every function here gives."""
    results = {"shared": shared_gradient(mesh), "used before": used_before_leaving(mesh)}
    for sequence_parallel in (False, True):
        results["both ways", sequence_parallel] = both_ways(mesh, sequence_parallel)
        results["linear", sequence_parallel] = rows_of_linear(mesh, sequence_parallel)
        results["once", sequence_parallel] = once_for_all(mesh, sequence_parallel)
    return results


@pytest.fixture(scope="module")
def results():
    """By the number of ranks: what each gives."""
    return {size: run_ranks(size, everything, tp_size=size) for size in (2, 4)}


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_what_all_compute_alike_counts_once(results, size, sequence_parallel):
    results = [one["once", sequence_parallel] for one in results[size]]
    x = random(TOKENS, WIDTH)
    for rank, (entered, gradient, mine) in enumerate(results):
        assert torch.equal(entered, 2 * x if rank == 0 else torch.zeros_like(x))
        wanted = x.chunk(size)[rank] if sequence_parallel else x
        assert torch.equal(mine, wanted)
        assert torch.equal(gradient, 2 * wanted)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_entering_and_leaving(results, size, sequence_parallel):
    results = [one["both ways", sequence_parallel] for one in results[size]]
    x, upstream, factor = random(TOKENS, WIDTH), random(TOKENS, WIDTH, seed=1), size * (size + 1) // 2
    join = torch.cat if sequence_parallel else lambda parts: parts[0]
    assert all(torch.equal(entered, x) for entered, *_ in results)
    torch.testing.assert_close(join([total for _, total, *_ in results]), factor * x)
    torch.testing.assert_close(join([gradient for _, _, gradient, *_ in results]), factor * upstream)
    kinds = {"all_gather": 2, "reduce_scatter": 2} if sequence_parallel else {"all_reduce": 2}
    for _, total, gradient, calls in results:
        assert calls == kinds
        if not sequence_parallel:
            assert torch.equal(total, results[0][1])
            assert torch.equal(gradient, results[0][2])


def shared_gradient(mesh):
    """The gradient that enters is used twice: once through the region, once beside it."""
    region = region_of(mesh.tensor, False)
    x, beside = (torch.ones(TOKENS, WIDTH).requires_grad_() for _ in range(2))
    (region.enter(x) + beside).sum().backward()
    return x.grad, beside.grad


def test_the_sum_of_gradients_leaves_others_alone(results):
    for through, beside in (one["shared"] for one in results[2]):
        assert (through == 2).all()
        assert (beside == 1).all()


def used_before_leaving(mesh):
    x = torch.ones(TOKENS, WIDTH).requires_grad_()
    product = x * 2
    squared = product * product  # keeps product for its gradient
    region_of(mesh.tensor, False).leave(product)
    try:
        squared.sum().backward()
    except RuntimeError as error:
        return str(error)
    return "nothing was noticed"


def test_a_value_that_others_need_is_not_overwritten_unnoticed(results):
    assert all("inplace operation" in one["used before"] for one in results[2])


def rows_of_linear(mesh, sequence_parallel):
    x, weight = random(TOKENS, 4), random(WIDTH, 4, seed=2)
    width = 4 // mesh.tensor.size
    part = slice(mesh.tensor.rank * width, (mesh.tensor.rank + 1) * width)
    bias = torch.arange(float(WIDTH)).requires_grad_()
    linear = lambda bias: torch.nn.functional.linear(x[:, part], weight[:, part], bias)  # noqa: E731
    output = region_of(mesh.tensor, sequence_parallel).row_parallel(linear, bias)
    output.sum().backward()
    return output.detach(), bias.grad


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_the_bias_of_a_sum_is_added_once(results, sequence_parallel):
    results = [one["linear", sequence_parallel] for one in results[2]]
    wanted = random(TOKENS, 4) @ random(WIDTH, 4, seed=2).t() + torch.arange(float(WIDTH))
    outputs = [output for output, _ in results]
    torch.testing.assert_close(torch.cat(outputs) if sequence_parallel else outputs[1], wanted)
    gradients = [gradient for _, gradient in results]
    total = sum(gradients) if sequence_parallel else gradients[1]  # parts, or whole on each rank
    assert (total == TOKENS).all()


def test_alone_nothing_is_done():
    x = random(TOKENS, WIDTH).requires_grad_()
    for flag in (False, True):
        region = region_of(ALONE, flag)
        assert region is UNCUT
        assert region.enter(x) is region.leave(x) is region.gather(x) is region.reduce(x) is x
        region.check_tokens(7)


def test_tokens_that_do_not_share_out_are_refused():
    group = Group(ranks=(0, 1, 2, 3))
    region_of(group, False).check_tokens(6)
    region_of(group, True).check_tokens(8)
    with pytest.raises(RecipeError, match=r"sequence_parallel: 6 tokens .* 4 tensor-parallel ranks; choose"):
        region_of(group, True).check_tokens(6)


@settings(deadline=None, max_examples=50)
@given(size=st.integers(1, 9), vocabulary=st.integers(1, 40), data=st.data())
def test_every_id_is_found_by_one_rank(size, vocabulary, data):
    ids = torch.tensor(data.draw(st.lists(st.integers(0, vocabulary - 1), min_size=1, max_size=9)))
    rows = -(-vocabulary // size)
    weight = random(rows * size, WIDTH)
    total = torch.zeros(len(ids), WIDTH)
    found = 0
    for rank in range(size):
        first = min(rank * rows, vocabulary)
        part = Vocabulary(Group(tuple(range(max(2, size)))), first, min(rows, vocabulary - first))
        index, here = part.locate(ids)
        assert (index >= 0).all()
        assert (index < rows).all()
        found += here.int()
        total += part.look_up(weight[rank * rows : (rank + 1) * rows], ids)
    assert (found == 1).all()
    assert torch.equal(total, weight[ids])


def test_the_whole_vocabulary_is_here():
    ids = torch.tensor([3, 0, 5])
    index, here = WHOLE_VOCABULARY.locate(ids)
    assert torch.equal(index, ids)
    assert here.all()
    weight = random(6, WIDTH)
    assert torch.equal(WHOLE_VOCABULARY.look_up(weight, ids), weight[ids])
