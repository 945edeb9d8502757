"""Collectives between real processes."""

import pytest
import torch
import torch.distributed as dist
from ranks import RanksFailedError, run_ranks

from kitae.backend.group import ALONE, Call, Group
from kitae.backend.transport import ProcessGroupTransport


def collectives(mesh, dtype):
    group, rank = mesh.data, mesh.data.rank
    own = torch.arange(6, dtype=dtype).view(3, 2) + 10 * rank
    results = {
        "sum": group.all_reduce(own.clone()),
        "max": group.all_reduce(own.clone(), "max"),
        "gathered": group.all_gather(own),
        "scattered": group.reduce_scatter(torch.arange(4 * group.size, dtype=dtype).view(-1, 2) + rank),
        "exchanged": group.exchange({"rank": rank}),
    }
    group.barrier()
    return results, dict(group.meter.bytes_in), dict(group.meter.calls), dict(group.meter.taken)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("through_host", [False, True])
def test_collectives(dtype, through_host):
    answers = run_ranks(3, collectives, dtype, through_host=through_host)
    own = [torch.arange(6, dtype=dtype).view(3, 2) + 10 * rank for rank in range(3)]
    for rank, (found, bytes_in, calls, taken) in enumerate(answers):
        assert torch.equal(found["sum"], own[0] + own[1] + own[2])
        assert torch.equal(found["max"], own[2])
        assert torch.equal(found["gathered"], torch.cat(own))
        whole = torch.arange(12, dtype=dtype).view(6, 2)
        assert torch.equal(found["scattered"], (3 * whole + 3)[2 * rank : 2 * rank + 2])
        assert found["exchanged"] == [{"rank": 0}, {"rank": 1}, {"rank": 2}]
        size = dtype.itemsize
        assert bytes_in == {"all_reduce": 12 * size, "all_gather": 6 * size, "reduce_scatter": 12 * size}
        assert calls == {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
        assert taken == {
            Call("all_reduce", (0, 1, 2), 6 * size): 2,
            Call("all_gather", (0, 1, 2), 6 * size): 1,
            Call("reduce_scatter", (0, 1, 2), 12 * size): 1,
        }


def grid(mesh):
    held = {size: group.ranks for size, group in mesh.copies.items()}
    return mesh.rank, mesh.tensor.ranks, mesh.tensor.rank, mesh.data.ranks, mesh.data.rank, held


def test_tensor_parallel_ranks_are_neighbours():
    assert run_ranks(4, grid, tp_size=2) == [
        (0, (0, 1), 0, (0, 2), 0, {}),
        (1, (0, 1), 1, (1, 3), 0, {}),
        (2, (2, 3), 0, (0, 2), 1, {}),
        (3, (2, 3), 1, (1, 3), 1, {}),
    ]
    assert run_ranks(4, grid, tp_size=4)[2] == (2, (0, 1, 2, 3), 2, (2,), 0, {2: (2, 3)})


def over_nccl(mesh):
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    group, tensor = Group(transport=ProcessGroupTransport(dist.group.WORLD)), torch.arange(4.0, device="cuda")
    found = (
        group.all_reduce(tensor.clone()),
        group.all_reduce(tensor.clone(), "max"),
        torch.empty_like(tensor),
        torch.empty_like(tensor),
        torch.empty_like(tensor)[None],
    )
    group.start_all_gather(found[2], tensor).wait()
    group.start_reduce_scatter(found[3], tensor).wait()
    group.start_all_to_all(found[4], tensor[None]).wait()
    return [one.flatten().tolist() for one in found]


@pytest.mark.cuda
def test_one_rank_over_nccl():
    assert run_ranks(1, over_nccl) == [[[0.0, 1.0, 2.0, 3.0]] * 5]


def test_alone_nothing_moves():
    tensor = torch.arange(4.0)
    assert ALONE.all_reduce(tensor) is tensor
    assert ALONE.all_gather(tensor) is tensor
    assert ALONE.reduce_scatter(tensor) is tensor
    assert ALONE.exchange(3) == [3]
    ALONE.barrier()
    assert not ALONE.meter.calls


def fails_on_one(mesh):
    print("about to fail")
    if mesh.rank == 1:
        raise ValueError("this one")
    mesh.control.barrier()


def test_a_failing_rank_is_named():
    with pytest.raises(RanksFailedError, match=r"rank 1 failed: ValueError: this one"):
        run_ranks(2, fails_on_one, timeout_s=20)


def sleeps_on_one(mesh):
    if mesh.rank == 1:
        import time

        time.sleep(60)
    return mesh.rank


def test_a_stuck_rank_is_named():
    with pytest.raises(RanksFailedError, match=r"ranks \[.*1.*\] did not end within 4"):
        run_ranks(2, sleeps_on_one, timeout_s=4)
