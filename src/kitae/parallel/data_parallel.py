"""Sums of gradients over the replicas of a model, in buckets that travel while the backward pass goes on.

Buckets hold parameters in reverse order, as the backward pass finishes them, and start strictly one after
the other: all ranks start the same ones in the same order, whatever finishes first. A gradient is copied into
its bucket as soon as it is final, and `release` is told: whoever holds the full sum can then let go of it. At
most `IN_FLIGHT` buckets are under way, so that beside the sums lie so many buffers, and the results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

import torch

from kitae.backend.group import Group
from kitae.parallel.buckets import Exchange, GatherRows, ReduceAll, ReturnRows, ScatterRows, ScatterSums
from kitae.parallel.layout import Shape
from kitae.parallel.packed import packed
from kitae.parallel.shares import Shares

IN_FLIGHT = 2
"""One travels while the next is sent."""


class DataParallel:
    """The replicas' gradients and rows of one model.

    `parameters` are the local ones by name; `shares.group` is `group` or, when every replica keeps all rows,
    a group of one. Gradients travel in `wire_dtype` (fp32 or bf16), `bucket_bytes` of them at a time, and are
    summed in fp32. With one replica nothing is copied.
    """

    def __init__(
        self,
        parameters: Mapping[str, torch.Tensor],
        shares: Shares,
        group: Group,
        *,
        wire_dtype: torch.dtype,
        bucket_bytes: int,
        release: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._parameters, self._shares, self._group = parameters, shares, group
        self._wire_dtype, self._bucket_bytes, self._release = wire_dtype, bucket_bytes, release
        sizes = {name: parameters[name].numel() * wire_dtype.itemsize for name in reversed([*parameters])}
        self._buckets = [
            {name: shares.shapes[name] for name in names} for names in packed(sizes, bucket_bytes)
        ]
        self._round: _Round | None = None

    def begin(self) -> None:
        """Say that the coming backward pass is the last of the update: it makes sums final."""
        if self._group.size > 1:
            self._round = self._new_round()

    def ready(self, name: str, gradient_sum: torch.Tensor) -> None:
        """Take the fp32 sum [local shape] of a parameter's gradients, if it is final; full buckets start."""
        if self._round is not None:
            self._round.put(name, gradient_sum)
            self._round.start_full()

    def under_way(self) -> list[torch.Tensor]:
        """What gradients travel in, and come back in; nothing between updates."""
        return [] if self._round is None else self._round.tensors()

    def finish(self, sums: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Give this rank's rows of the fp32 sums over the replicas; `sums` has those that were not ready.

        A parameter without a gradient on any replica gets zeros. With one replica: the very same tensors.
        """
        if self._group.size == 1:
            return dict(sums)
        update, self._round = self._round or self._new_round(), None
        results = update.finish(sums)
        return {name: results[name] for name in self._parameters}

    @torch.no_grad()
    def gather(self, own: Mapping[str, torch.Tensor] | None = None) -> None:
        """Give every replica's parameters the rows that all updated, in the parameters' dtype.

        This one's are `own` [own rows, ...] by parameter name or, without, as they stand in the parameters.
        """
        if self._shares.group.size == 1:
            return
        under_way: deque[GatherRows] = deque()
        for names in self._of_one_dtype():
            tensors = {name: self._parameters[name] for name in names}
            rows = {name: (own or {}).get(name, self._shares.cut(name, tensors[name])) for name in names}
            under_way.append(GatherRows(tensors, rows, self._shares))
            if len(under_way) == IN_FLIGHT:
                under_way.popleft().receive()
        for bucket in under_way:
            bucket.receive()

    def _of_one_dtype(self) -> list[list[str]]:
        sizes: dict[torch.dtype, dict[str, int]] = {}
        for name, parameter in self._parameters.items():
            sizes.setdefault(parameter.dtype, {})[name] = parameter.nbytes
        return [names for of_dtype in sizes.values() for names in packed(of_dtype, self._bucket_bytes)]

    @property
    def _sums_on_receipt(self) -> bool:
        """Whether the rank that gets rows sums them: also where what travels holds fewer digits than sums."""
        transport = self._group.transport
        return transport is None or transport.sums_on_receipt or self._wire_dtype != torch.float32

    def _new_round(self) -> _Round:
        return _Round(self._buckets, self._exchange, self._release)

    def _exchange(self, shapes: Mapping[str, Shape]) -> Exchange:
        device = self._parameters[next(iter(shapes))].device
        if self._shares.group.size > 1:
            own_rows = ScatterRows if self._sums_on_receipt else ScatterSums
            return own_rows(shapes, self._group, self._wire_dtype, device)
        if self._wire_dtype == torch.float32:
            return ReduceAll(shapes, self._group, self._wire_dtype, device)
        return ReturnRows(shapes, self._group, self._wire_dtype, device)


class _Round:
    """The buckets of one update."""

    def __init__(
        self,
        buckets: list[dict[str, Shape]],
        exchange: Callable[[Mapping[str, Shape]], Exchange],
        release: Callable[[str], None],
    ) -> None:
        self._buckets, self._exchange, self._release = buckets, exchange, release
        self._bucket_of = {name: index for index, names in enumerate(buckets) for name in names}
        self._missing = [set(names) for names in buckets]
        self._open: dict[int, Exchange] = {}
        self._started: deque[Exchange] = deque()
        self._received = 0

    def put(self, name: str, gradient: torch.Tensor) -> None:
        index = self._bucket_of[name]
        self._missing[index].remove(name)
        self._at(index).put(name, gradient)
        self._release(name)

    def start_full(self) -> None:
        while len(self._started) < len(self._buckets) and not self._missing[len(self._started)]:
            self._start_next()

    def finish(self, sums: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        while (index := len(self._started)) < len(self._buckets):
            for name in sorted(self._missing[index] & sums.keys()):
                self.put(name, sums[name])
            self._start_next()
        self._receive_but(0)
        results: dict[str, torch.Tensor] = {}
        while self._started:  # what a bucket came in goes before the results of the next one are made
            results.update(self._started.popleft().results())
        return results

    def tensors(self) -> list[torch.Tensor]:
        exchanges = [*self._started, *self._open.values()]
        return [one for trip in exchanges for one in vars(trip).values() if isinstance(one, torch.Tensor)]

    def _at(self, index: int) -> Exchange:
        if index not in self._open:
            self._open[index] = self._exchange(self._buckets[index])
        return self._open[index]

    def _start_next(self) -> None:
        self._receive_but(IN_FLIGHT - 1)
        index = len(self._started)
        exchange = self._at(index)
        exchange.start()
        self._started.append(self._open.pop(index))

    def _receive_but(self, count: int) -> None:
        """Wait for all that started but the last `count`."""
        while self._received < len(self._started) - count:
            self._started[self._received].receive()
            self._received += 1
