"""The sides of `parallel.py`: kitae's loop cut in each way, and what transformers and torch offer."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from sides import say
from train_sides import BETAS, LEARNING_RATE, MAX_GRAD_NORM, WEIGHT_DECAY, Gate, Work, kitae_job

if TYPE_CHECKING:
    from kitae.parallel.mesh import Mesh
    from kitae.train.batch import GlobalBatch
    from kitae.train.step import Stepper, Update

TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Cut:
    """How one of kitae's sides is cut."""

    tensor_parallel: bool = False
    data_parallel: bool = False
    sequence_parallel: bool = False
    zero1: bool = False
    buckets_during_backward: bool = True

    def settings(self, ranks: int) -> dict[str, Any]:
        """The recipe's section `parallel`."""
        return {
            "tensor_parallel_size": ranks if self.tensor_parallel else 1,
            "data_parallel_size": ranks if self.data_parallel else 1,
            "sequence_parallel": self.sequence_parallel,
            "zero1": self.zero1,
        }


CUTS = {
    "one": Cut(),
    "tp": Cut(tensor_parallel=True),
    "tp-sequence": Cut(tensor_parallel=True, sequence_parallel=True),
    "dp": Cut(data_parallel=True),
    "dp-zero1": Cut(data_parallel=True, zero1=True),
    "dp-late": Cut(data_parallel=True, buckets_during_backward=False),
}


def world() -> tuple[int, int]:
    """Number of ranks and of this one."""
    return int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))


def join() -> None:
    """Meet the other ranks."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT_S))


def mesh_of(cut: Cut) -> Mesh:
    """The ranks' mesh, which counts what goes over the control group apart from what goes between devices."""
    from kitae.backend.group import Meter
    from kitae.parallel.mesh import Mesh, join_world

    ranks, _ = world()
    if ranks == 1:
        return Mesh()
    join()
    tp_size = ranks if cut.tensor_parallel else 1
    mesh = join_world(tp_size=tp_size, transport="gloo", through_host=False, timeout_s=TIMEOUT_S)
    return replace(mesh, control=replace(mesh.control, meter=Meter()))


def kitae(work: Work, gate: Gate, cut: Cut) -> None:
    """Run kitae's own loop in this rank; the gate stands where it reads the rows of an update."""
    from kitae.train.loop import train
    from kitae.train.step import Stepper

    mesh = mesh_of(cut)
    job = kitae_job(work, gate, mesh, **cut.settings(world()[0]))
    usual = Stepper.update

    def noted(self: Stepper, batch: GlobalBatch, *arguments: Any, **options: Any) -> Update:
        if not cut.buckets_during_backward:
            self.weights.on_sum = None
        before = moved(mesh)
        update = usual(self, batch, *arguments, **options)
        gate.losses.append(update.loss)
        gate.notes = {
            "moved": moved(mesh) - before,
            "expected": expected(self, batch, cut),
            "control": mesh.control.meter.bytes_in.total() / len(gate.losses),
        }
        return update

    Stepper.update = noted  # type: ignore[method-assign]
    say({"ready": True})
    train(job)


def moved(mesh: Mesh) -> Counter[str]:
    """Bytes that this rank has given to collectives between devices so far, by kind."""
    return Counter(mesh.world.meter.bytes_in)


def expected(stepper: Stepper, batch: GlobalBatch, cut: Cut) -> Counter[str]:
    """The closed form of what an update moves, in fp32."""
    from kitae.parallel import traffic
    from kitae.train.loss import IGNORE

    mesh, config = stepper.mesh, stepper.model.config
    spread = traffic.Spread(
        tensor_parallel_size=mesh.tensor.size,
        data_parallel_size=mesh.data.size,
        data_parallel_rank=mesh.data.rank,
        sequence_parallel=cut.sequence_parallel,
        zero1=cut.zero1,
        wire_bytes=4,
    )
    size = traffic.Work(
        hidden_size=config.hidden_size,
        num_layers=config.num_layers,
        tokens=[part.input_ids.numel() for part in batch.micro_batches],
        targets=sum(int((part.targets != IGNORE).sum()) for part in batch.micro_batches),
        hidden_bytes=4,
        product_bytes=4,
        parameter_bytes=4,
        recompute_layers=False,
    )
    return traffic.update_traffic(stepper.model.layouts, spread, size)


def transformers_tp(work: Work, gate: Gate) -> None:
    """The plan of transformers, with AdamW."""
    from torch.distributed.tensor import DTensor
    from transformers import AutoModelForCausalLM

    warnings.filterwarnings("ignore", "Passing `tp_plan` directly", FutureWarning)
    join()
    model = AutoModelForCausalLM.from_pretrained(work.model, dtype=torch.float32, tp_plan="auto").train()
    cut = [one for one in model.parameters() if isinstance(one, DTensor)]
    whole = [one for one in model.parameters() if not isinstance(one, DTensor)]
    assert cut, "transformers has cut nothing"
    # Neither fused kernels nor norms take both kinds at once.
    optimizer = torch.optim.AdamW(
        [*decay_groups(cut), *decay_groups(whole)], lr=LEARNING_RATE, betas=BETAS, fused=True
    )

    def clip() -> None:
        squares = [torch.nn.utils.get_total_norm([one.grad for one in part]) ** 2 for part in (cut, whole)]
        norm = sum(one.full_tensor() if isinstance(one, DTensor) else one for one in squares) ** 0.5
        for part in (cut, whole):
            torch.nn.utils.clip_grads_with_norm_(part, MAX_GRAD_NORM, norm)

    rows = torch.tensor(work.rows()).view(work.updates, work.accumulation, work.micro_batch, -1)
    train_bare(model, rows, optimizer, clip, gate, no_sync=nullcontext)


def ddp(work: Work, gate: Gate, *, zero1: bool) -> None:
    """Torch's DistributedDataParallel around transformers, with AdamW or its ZeroRedundancyOptimizer."""
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel
    from transformers import AutoModelForCausalLM

    join()
    ranks, rank = world()
    model = AutoModelForCausalLM.from_pretrained(work.model, dtype=torch.float32).train()
    replica = DistributedDataParallel(model, gradient_as_bucket_view=True)
    settings: dict[str, Any] = {"lr": LEARNING_RATE, "betas": BETAS, "fused": True}
    groups = decay_groups(model.parameters())
    optimizer = (
        ZeroRedundancyOptimizer(groups, optimizer_class=torch.optim.AdamW, **settings)
        if zero1
        else torch.optim.AdamW(groups, **settings)
    )

    def clip() -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)

    rows = torch.tensor(work.rows()).view(work.updates, -1, ranks, work.micro_batch, work.sequence_length)
    train_bare(replica, rows[:, :, rank], optimizer, clip, gate, no_sync=replica.no_sync)


def decay_groups(parameters: Iterable[torch.nn.Parameter]) -> Iterator[dict[str, Any]]:
    """Matrices decay, others do not."""
    held = list(parameters)
    for matrices, decay in ((True, WEIGHT_DECAY), (False, 0.0)):
        members = [one for one in held if (one.ndim > 1) is matrices]
        if members:
            yield {"params": members, "weight_decay": decay}


def train_bare(
    model: torch.nn.Module,
    rows: torch.Tensor,
    optimizer: torch.optim.Optimizer,
    clip: Callable[[], None],
    gate: Gate,
    *,
    no_sync: Callable[[], Any],
) -> None:
    """The shortest loop; rows are [updates, micro-batches, B, S]."""
    say({"ready": True})
    for update in rows:
        gate()
        total = 0.0
        for number, ids in enumerate(update):
            with nullcontext() if number == len(update) - 1 else no_sync():
                loss = model(input_ids=ids, labels=ids).loss / len(update)
                loss.backward()
            total += loss.item()
        clip()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        gate.losses.append(total)


PEERS: dict[str, Callable[[Work, Gate], None]] = {
    "transformers-tp": transformers_tp,
    "ddp": lambda work, gate: ddp(work, gate, zero1=False),
    "ddp-zero": lambda work, gate: ddp(work, gate, zero1=True),
}


def main() -> None:
    name, work = sys.argv[1], Work(**json.loads(sys.argv[2]))
    gate = Gate(work.steps)
    if name in CUTS:
        kitae(work, gate, CUTS[name])
        return
    if work.tuned_peers:
        from kitae.backend.table import select

        select("cpu")
    PEERS[name](work, gate)


if __name__ == "__main__":
    main()
