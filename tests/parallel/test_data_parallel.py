"""Gradient sums over replicas, in real processes: right values, one order everywhere, no copies of one."""

from __future__ import annotations

import random
import weakref

import pytest
import torch
from ranks import run_ranks
from torch import nn

from kitae.backend.group import ALONE
from kitae.parallel.buckets import ReturnRows
from kitae.parallel.data_parallel import DataParallel
from kitae.parallel.gradients import plain_layouts
from kitae.parallel.packed import packed
from kitae.parallel.shares import Shares

SHAPES = {
    "a": (7, 3),
    "scalar": (),
    "b": (1, 4),
    "norm": (5,),
    "kernel": (4, 2, 3),
    "unused": (2, 2),
    "none": (0, 3),
}


class Odd(nn.Module):
    """Parameters of every shape."""

    def __init__(self):
        super().__init__()
        for name, shape in SHAPES.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))


def replicas(mesh, module, *, zero1=True, wire_dtype=torch.float32, bucket_bytes=64, **more):
    shares = Shares(plain_layouts(module), mesh.data if zero1 else ALONE)
    parameters = dict(module.named_parameters())
    return shares, DataParallel(
        parameters, shares, mesh.data, wire_dtype=wire_dtype, bucket_bytes=bucket_bytes, **more
    )


def whole_numbers(rank):
    """Gradients whose sums are exact in any order and in bf16."""
    generator = torch.Generator().manual_seed(rank)
    return {
        name: torch.randint(-9, 9, shape, generator=generator).float()
        for name, shape in SHAPES.items()
        if name != "unused"
    }


def summed_wrongly(mesh):
    """In a rank: which combinations give other sums than expected."""
    expected = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    for rank in range(mesh.data.size):
        for name, gradient in whole_numbers(rank).items():
            expected[name] += gradient
    wrong = []
    for zero1 in (True, False):
        for wire_dtype in (torch.float32, torch.bfloat16):
            for bucket_bytes in (8, 64, 1 << 20):
                shares, data = replicas(
                    mesh, Odd(), zero1=zero1, wire_dtype=wire_dtype, bucket_bytes=bucket_bytes
                )
                for share_ready in (0, 0.5, 1):
                    found = update(data, mesh, share_ready)
                    if list(found) != list(SHAPES) or any(
                        gradient.dtype != torch.float32
                        or not torch.equal(gradient, shares.cut(name, expected[name]).view_as(gradient))
                        for name, gradient in found.items()
                    ):
                        wrong.append((zero1, wire_dtype, bucket_bytes, share_ready))
    return wrong


def update(data, mesh, share_ready):
    """Every rank finishes its gradients in an order of its own."""
    sums = whole_numbers(mesh.rank)
    names = random.Random(mesh.rank).sample(sorted(sums), int(share_ready * len(sums)))
    data.ready("a", sums["a"])  # an earlier micro-batch: not final
    if share_ready:
        data.begin()
    for name in names:
        data.ready(name, sums.pop(name))
    return data.finish(sums)


@pytest.mark.parametrize("world", [2, 3])
def test_sums_over_the_replicas(world):
    """With and without ZeRO-1, in either dtype, for any buckets, whatever is ready when."""
    assert run_ranks(world, summed_wrongly) == [[]] * world


def with_one_large_value(mesh):
    module = nn.Linear(4, 3, bias=False)
    sums = {"weight": torch.full((3, 4), 256.0 if mesh.rank == 0 else 1.0)}
    return [
        replicas(mesh, module, zero1=zero1, wire_dtype=torch.bfloat16)[1].finish(sums)["weight"].tolist()
        for zero1 in (True, False)
    ], dict(mesh.meter.bytes_in)


def test_bf16_travels_and_fp32_is_summed():
    """256 + 1 + 1 is 256 in bf16, whose numbers are 2 apart there."""
    for values, bytes_in in run_ranks(3, with_one_large_value):
        assert values == [[[258.0] * 4], [[258.0] * 4] * 3]
        assert bytes_in == {"all_to_all": 2 * 3 * 4 * 2, "all_gather": 4 * 2}


def in_order_of_the_ranks(mesh):
    values = [torch.randn(6, 50, generator=torch.Generator().manual_seed(rank)) for rank in range(4)]
    shares, data = replicas(mesh, nn.Linear(50, 6, bias=False))
    found = data.finish({"weight": values[mesh.rank]})["weight"]
    return torch.equal(found, shares.cut("weight", ((values[0] + values[1]) + values[2]) + values[3]))


def test_shares_are_summed_in_the_order_of_the_ranks():
    assert all(run_ranks(4, in_order_of_the_ranks))


def begun_early(mesh):
    """Collectives begun, and sums released, after each parameter of two buckets, and what is shared."""
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    released = []
    _, data = replicas(mesh, module, bucket_bytes=(16 + 4) * 4, release=released.append)
    gradients = {name: torch.ones_like(one) for name, one in module.named_parameters()}
    data.begin()
    seen = []
    for name in ("0.weight", "0.bias", "1.weight", "1.bias"):
        data.ready(name, gradients[name])
        seen.append((mesh.meter.calls["all_to_all"], len(released)))
    found = data.finish({})
    storages = {name: one.untyped_storage().data_ptr() for name, one in found.items()}
    return seen, storages["0.weight"] == storages["0.bias"], sum(one.sum().item() for one in found.values())


def test_buckets_start_in_reverse_order_as_soon_as_they_are_full():
    """The first layer's bucket is full, and waits for the last layer's; sums are let go at once."""
    for seen, shared, total in run_ranks(2, begun_early):
        assert seen == [(0, 1), (0, 2), (0, 3), (2, 4)]
        assert shared
        assert total == 2 * 20


def alive_at_results(mesh):
    """Buckets that are still there whenever the results of one are made, and whether they hold sums."""
    made, seen = [], []
    init, results = ReturnRows.__init__, ReturnRows.results

    def noted(self, *arguments):
        made.append(weakref.ref(self))
        init(self, *arguments)

    def counted(self):
        there = [one() for one in made if one() is not None]
        seen.append((len(there), any("_sums" in vars(one) for one in there)))
        return results(self)

    ReturnRows.__init__, ReturnRows.results = noted, counted
    _, data = replicas(mesh, nn.Linear(4, 3), zero1=False, wire_dtype=torch.bfloat16, bucket_bytes=8)
    data.finish({"weight": torch.ones(3, 4), "bias": torch.ones(3)})
    return seen


def test_buckets_go_one_after_the_other():
    """Sums that came back in bf16 make room for fp32."""
    assert run_ranks(2, alive_at_results) == [[(2, False), (1, False)]] * 2


def gathered(mesh):
    module = Odd()
    module.norm.data = module.norm.data.bfloat16()
    module.kernel.data = module.kernel.data.bfloat16()
    shares, data = replicas(mesh, module)
    for name, parameter in module.named_parameters():
        shares.cut(name, parameter).fill_(mesh.rank + 1)
    data.gather()
    return {name: parameter.detach().tolist() for name, parameter in module.named_parameters()}


def test_gather_gives_every_replica_all_rows():
    found = run_ranks(3, gathered)
    assert found[0] == found[1] == found[2]
    assert found[0]["norm"] == [1, 1, 2, 2, 3]
    assert found[0]["scalar"] == 1
    assert found[0]["b"] == [[1.0] * 4]
    assert [row[0] for row in found[0]["a"]] == [1, 1, 1, 2, 2, 2, 3]
    assert [row[0][0] for row in found[0]["kernel"]] == [1, 1, 2, 2]


def test_one_replica_copies_nothing():
    module = Odd()
    shares = Shares(plain_layouts(module), ALONE)
    parameters = dict(module.named_parameters())
    data = DataParallel(parameters, shares, ALONE, wire_dtype=torch.float32, bucket_bytes=64)
    sums = whole_numbers(0)
    data.begin()
    for name, one in sums.items():
        data.ready(name, one)
    found = data.finish(sums)
    data.gather()
    assert found.keys() == sums.keys()
    assert all(found[name] is sums[name] for name in sums)


def plain_model():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv1d(3, 5, 3), nn.Flatten(), nn.LayerNorm(30), nn.Linear(30, 7), nn.GELU(), nn.Linear(7, 2)
    )


def trained_both_ways(mesh):
    return [trained(mesh, zero1) for zero1 in (True, False)]


def trained(mesh, zero1):
    """The parameters after a few updates on this rank's rows of 12."""
    model = plain_model()
    parameters = dict(model.named_parameters())
    shares, data = replicas(mesh, model, zero1=zero1, bucket_bytes=200)
    for name, parameter in parameters.items():
        parameter.register_post_accumulate_grad_hook(lambda one, name=name: data.ready(name, one.grad))
    own = {name: shares.cut(name, parameter.detach()) for name, parameter in parameters.items()}
    optimizer = torch.optim.AdamW(own.values(), lr=0.01)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        inputs, targets = (torch.randn(12, *shape, generator=generator) for shape in ((3, 8), (2,)))
        rows = slice(mesh.data.rank, None, mesh.data.size)
        loss = (model(inputs[rows]) - targets[rows]).square().sum() / 24
        data.begin()
        loss.backward()
        sums = {name: parameter.grad for name, parameter in parameters.items()}
        ready = {} if mesh.data.size > 1 else sums
        for name, gradient in data.finish(ready).items():
            own[name].grad = gradient
        optimizer.step()
        data.gather()
        model.zero_grad()
    return {name: parameter.detach() for name, parameter in parameters.items()}


def test_a_plain_module_trains_as_in_one_process():
    """With and without ZeRO-1."""
    (alone, _), *_ = run_ranks(1, trained_both_ways)
    for world in (2, 3):
        by_rank = run_ranks(world, trained_both_ways)
        for found in zip(*by_rank, strict=True):
            for name, expected in alone.items():
                torch.testing.assert_close(found[0][name], expected, rtol=1e-5, atol=1e-6)
                assert all(torch.equal(found[0][name], one[name]) for one in found)


def test_runs_are_packed_up_to_the_limit():
    sizes = {"a": 3, "b": 3, "c": 9, "d": 1, "e": 5, "f": 0}
    assert packed(sizes, 6) == [["a", "b"], ["c"], ["d", "e", "f"]]
    assert packed({}, 6) == []
