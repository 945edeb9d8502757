"""Collectives as operations of a graph: what they leave where, in which groups, and if XLA takes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch_xla = pytest.importorskip("torch_xla")
import torch  # noqa: E402

from kitae.backend.group import Call, Group  # noqa: E402
from kitae.backend.xla_transport import XlaTransport  # noqa: E402
from kitae.parallel.mesh import mesh_of  # noqa: E402
from kitae.precompile.hlo import Collective, collectives  # noqa: E402
from kitae.precompile.traced import Echo  # noqa: E402

pytestmark = pytest.mark.xla
ALONE = Group(transport=XlaTransport(((0,),)))
"""One rank, whose collectives are in the graph all the same: they can be run here."""


def on_device(*shape, dtype=torch.float32):
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).view(shape).to(dtype).to(torch_xla.device())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("reduction", ["sum", "max"])
def test_all_reduce_is_in_place(dtype, reduction):
    tensor = on_device(2, 3, dtype=dtype)
    seen = tensor.view(-1)[3:]
    expected = tensor.cpu()
    assert ALONE.all_reduce(tensor, reduction) is tensor
    torch_xla.sync()
    assert torch.equal(tensor.cpu(), expected)
    assert torch.equal(seen.cpu(), expected.view(-1)[3:])


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_to_all"])
def test_results_are_where_the_output_is_seen(kind):
    """Buckets look at one buffer through several views; the result has to be in all of them."""
    tensor = on_device(1, 6)
    buffer = torch.zeros(2, 6, device=torch_xla.device())
    getattr(ALONE, f"start_{kind}")(buffer[1:], tensor).wait()
    torch_xla.sync()
    assert buffer.cpu().tolist() == [[0.0] * 6, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]


def test_every_collective_names_the_groups_of_all_ranks():
    """Rank 5 of tp 4 x dp 2: the program has both tensor-parallel groups, and all four of replicas."""
    mesh = mesh_of(8, 4, 5, control=Echo, device=XlaTransport)
    tensor = on_device(8, 2)
    found = [
        mesh.tensor.all_reduce(tensor.clone()),
        mesh.data.all_gather(tensor),
        mesh.copies[2].reduce_scatter(tensor),
    ]
    text = torch_xla._XLAC._get_xla_tensors_hlo(found)
    assert collectives(text) == {
        Collective("all_reduce", ((0, 1, 2, 3), (4, 5, 6, 7)), 64): 1,
        Collective("all_gather", ((0, 4), (1, 5), (2, 6), (3, 7)), 64): 1,
        Collective("reduce_scatter", ((0, 1), (2, 3), (4, 5), (6, 7)), 64): 1,
    }
    assert mesh.meter.taken == {
        Call("all_reduce", (4, 5, 6, 7), 64): 1,
        Call("all_gather", (1, 5), 64): 1,
        Call("reduce_scatter", (4, 5), 64): 1,
    }
    assert "constrain_layout" not in text


@pytest.mark.parametrize("name", ["dp2-tp2", "dp4-bf16-wire"])
def test_the_compiler_takes_the_programs_for_four_replicas(name):
    """Each is compiled once, also when it is traced again; none is run."""
    command = [sys.executable, str(Path(__file__).with_name("compiled_case.py")), name]
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=-1, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    graphs = ["begin", "train/first", "train/middle", "train/last", "update"]
    assert found["compiled"] == [[one, 1] for one in graphs] + [[one, 0] for one in graphs]
    assert "ExecuteTime" not in found["counted"]
