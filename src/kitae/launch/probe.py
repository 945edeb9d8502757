"""What each rank does when machines are tried before a training."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import psutil
import torch
import torch.distributed as dist

from kitae.backend.base import Backend
from kitae.backend.table import select
from kitae.backend.transport import ProcessGroupTransport
from kitae.errors import StorageError
from kitae.launch.nodecheck import TRIES, Report, Round, findings, slow
from kitae.parallel.mesh import Mesh
from kitae.storage.disk import free_bytes
from kitae.storage.files import replace_file

RESULT = "check.json"
"""Reports of all ranks, by round; in the folder of the check."""
_REPEATS = 8
_LINK_BYTES, _LINK_REPEATS, _MOST_DISTANCES = 16 << 20, 10, 8
_MEMORY_BYTES, _DISK_BYTES = 64 << 20, 8 << 20


def check_rank(mesh: Mesh, folder: str) -> None:
    """Try this rank's machine together with all others; the first rank writes down what all measured."""
    probe = Probe(mesh, select(), Path(folder))
    rounds: list[Round] = []
    while True:
        rounds.append([Report(**one) for one in mesh.control.exchange(asdict(probe.report(len(rounds))))])
        # All ranks see the same reports, and go on or end together.
        if findings(rounds) or not slow(rounds[-1]) or len(rounds) == TRIES:
            break
    if mesh.leads:
        found = [[asdict(report) for report in one] for one in rounds]
        replace_file(Path(folder) / RESULT, json.dumps(found).encode())


def read_rounds(folder: Path) -> list[list[Report]]:
    """What a check wrote."""
    rounds = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    return [[Report(**{**one, "received_s": _links(one)}) for one in found] for found in rounds]


def _links(report: dict[str, dict[str, float] | None]) -> dict[int, float] | None:
    """JSON has no numbers for names."""
    found = report["received_s"]
    return None if found is None else {int(node): seconds for node, seconds in found.items()}


class Probe:
    """The tests of one rank."""

    def __init__(self, mesh: Mesh, backend: Backend, folder: Path) -> None:
        self._mesh, self._backend, self._folder = mesh, backend, folder
        self._local_size = int(os.environ["LOCAL_WORLD_SIZE"])
        self._node = mesh.rank // self._local_size
        self._nodes = mesh.control.size // self._local_size

    def report(self, number: int) -> Report:
        """Do all tests; the exact ones say what was wrong. `number` is that of the round."""
        tests: dict[str, Callable[[], str]] = {
            "memory": self._memory,
            "disk": self._disk,
            "shared folder": lambda: self._shared_folder(number),
            "collectives": self._sum,
        }
        wrong = [self._tested(what, test) for what, test in tests.items()]
        seconds, product = self.matmul()
        links = self.links()
        bad_links = [f"what node {other} sent came wrong" for other, time in links.items() if time < 0]
        return Report(
            node=self._node,
            matmul_s=seconds,
            wrong="; ".join(one for one in (product, *wrong, *bad_links) if one),
            clock_s=self._clock(),
            memory_bytes=psutil.virtual_memory().total,
            free_bytes=free_bytes(Path(tempfile.gettempdir())) or 0,
            received_s=links if self._first else None,
        )

    @property
    def _first(self) -> bool:
        """Whether this rank is the one of its machine that talks to others."""
        return self._mesh.rank % self._local_size == 0

    def _tested(self, what: str, test: Callable[[], str]) -> str:
        self._mesh.meter.observer.touch(f"the check of its {what}")
        try:
            return test()
        except (OSError, RuntimeError) as error:
            if what == "collectives":
                raise
            return f"{what}: {error}"

    def matmul(self) -> tuple[float, str]:
        """Best time of a product of whole numbers, and what was wrong with one.

        The product is checked with vectors (Freivalds), as multiplying again would take as long.
        """
        self._mesh.meter.observer.touch("the check of its products")
        device = self._backend.device
        side = 512 if device.type == "cpu" else 4096
        draw = torch.Generator().manual_seed(side)
        left, right = (torch.randint(-4, 5, (side, side), generator=draw).float() for _ in range(2))
        vectors = torch.randint(1, 1000, (side, 4), generator=draw).double()
        expected = left.double() @ (right.double() @ vectors)
        on_device = left.to(device), right.to(device)
        times, wrong = [], ""
        self._mesh.control.barrier()
        for _ in range(_REPEATS + 1):
            begin = time.perf_counter()
            product = on_device[0] @ on_device[1]
            self._backend.synchronize()
            times.append(time.perf_counter() - begin)
            if not torch.equal(product.cpu().double() @ vectors, expected):
                wrong = "a product of matrices came wrong"
        return min(times[1:]), wrong

    def _memory(self) -> str:
        for device in {torch.device("cpu"), self._backend.device}:
            count = _MEMORY_BYTES // 8
            filled = torch.arange(count, device=device)
            if not torch.equal(filled.flip(0).flip(0), torch.arange(count, device=device)):
                return f"what was written to memory ({device.type}) came back changed"
        return ""

    def _disk(self) -> str:
        content = bytes(range(256)) * (_DISK_BYTES // 256)
        with tempfile.NamedTemporaryFile(prefix="kitae-check-") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            return "" if file.read() == content else f"what was written to {file.name} came back changed"

    def _shared_folder(self, number: int) -> str:
        """Each machine reads what its neighbour wrote."""
        other, said = (self._node + 1) % self._nodes, ""
        if self._first:
            try:
                replace_file(self._seen(number, self._node), f"{self._node}".encode())
            except StorageError as error:
                said = str(error)
        self._mesh.control.barrier()  # which a rank that could not write must not miss
        if not self._first or said:
            return said
        seen = self._seen(number, other).read_text(encoding="utf-8") == str(other)
        return "" if seen else f"it does not see what node {other} wrote to {self._folder}"

    def _seen(self, number: int, node: int) -> Path:
        return self._folder / f"seen-{number}-{node}"

    def _sum(self) -> str:
        """Over the transport of the training, one tensor of the size of a bucket."""
        size = self._mesh.world.size
        tensor = torch.full((1 << 20,), float(self._mesh.rank + 1), device=self._backend.device)
        total = self._mesh.world.all_reduce(tensor)
        right = torch.full_like(total, size * (size + 1) / 2)
        return "" if torch.equal(total, right) else "a sum over all processes came wrong"

    def links(self) -> dict[int, float]:
        """Best time to receive from other machines, by number; negative where something wrong came.

        All machines send at once, to the one at the same distance; of many machines some distances are tried.
        """
        found: dict[int, float] = {}
        distances = range(1, self._nodes)
        for distance in distances[:: max(1, len(distances) // _MOST_DISTANCES)]:
            source = (self._node - distance) % self._nodes
            self._mesh.meter.observer.touch(f"exchanging data with node {source}")
            times = []
            for _ in range(_LINK_REPEATS):
                self._mesh.control.barrier()
                if self._first:
                    times.append(self._link(source, (self._node + distance) % self._nodes))
            if times:
                found[source] = min(times)
        return found

    def _link(self, source: int, target: int) -> float:
        transport = self._mesh.control.transport
        assert isinstance(transport, ProcessGroupTransport)
        group = transport.handle
        given = torch.full((_LINK_BYTES,), self._node % 251, dtype=torch.uint8)
        taken = torch.empty_like(given)
        begin = time.perf_counter()
        sending = dist.isend(given, target * self._local_size, group=group)
        receiving = dist.irecv(taken, source * self._local_size, group=group)
        assert sending is not None
        assert receiving is not None
        receiving.wait()
        seconds = time.perf_counter() - begin
        sending.wait()
        return seconds if bool((taken == source % 251).all()) else -1.0

    def _clock(self) -> float:
        """How far this clock is before the first rank's: the least of several looks, all after a barrier."""
        offsets = []
        for _ in range(5):
            self._mesh.control.barrier()
            times = self._mesh.control.exchange(time.time())
            offsets.append(times[self._mesh.rank] - times[0])
        return float(min(offsets, key=abs))
