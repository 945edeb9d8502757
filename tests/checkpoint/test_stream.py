"""The loop between a source and a sink: order, what is read ahead, and how it ends."""

from __future__ import annotations

import threading
import weakref

import pytest
import torch
from native_case import DictSource

from kitae.checkpoint.pipe import blocks
from kitae.checkpoint.stream import stream

ROWS = 6
LARGE = {"a": torch.arange(24.0).view(ROWS, 4), "b": torch.arange(2.0), "c": torch.arange(8.0).view(2, 4)}


@pytest.fixture(autouse=True)
def a_row_at_a_time(monkeypatch):
    monkeypatch.setattr("kitae.checkpoint.stream.blocks", lambda info: blocks(info, 16))


class Taking:
    """A sink that puts boxes together."""

    def __init__(self):
        self.taken = {name: torch.full_like(tensor, -1) for name, tensor in LARGE.items()}
        self.boxes = []

    def write(self, name, box, tensor):
        self.boxes.append((name, box.start[0]))
        self.taken[name][box.slices()] = tensor

    def close(self):
        pass


class Watching(DictSource):
    """A source that knows how many of its values are alive, and what was read."""

    def __init__(self):
        super().__init__(LARGE)
        self.alive = self.peak = 0
        self.begun = {}

    def read(self, name, box=None):
        self.begun.setdefault((name, box.start[0]), threading.Event()).set()
        values = super().read(name, box).clone()
        self.alive += 1
        self.peak = max(self.peak, self.alive)
        weakref.finalize(values, self._gone)
        return values

    def _gone(self):
        self.alive -= 1


def test_all_in_order_with_two_boxes_in_memory_at_most():
    source, sink, complete = Watching(), Taking(), []
    stream(source, sink, wrote=complete.append)
    assert all(torch.equal(sink.taken[name], tensor) for name, tensor in LARGE.items())
    assert sink.boxes == [*(("a", row) for row in range(ROWS)), ("b", 0), ("c", 0), ("c", 1)]
    assert complete == ["a", "b", "c"]
    assert source.peak <= 2
    assert source.alive == 0


def test_the_next_rows_are_read_while_some_are_written():
    """But no other tensor: what was not written is not counted as read for long."""
    source = Watching()
    for row in range(ROWS + 1):
        source.begun["a", row] = threading.Event()
    source.begun["b", 0] = threading.Event()

    class Waiting(Taking):
        def write(self, name, box, tensor):
            if name == "a" and box.start[0] + 1 < ROWS:
                assert source.begun["a", box.start[0] + 1].wait(30)
            elif name == "a":
                assert not source.begun["b", 0].is_set()
            super().write(name, box, tensor)

    stream(source, Waiting())


@pytest.mark.parametrize("row", [0, 1, 5])
def test_a_source_that_fails(row):
    class Failing(Watching):
        def read(self, name, box=None):
            if box.start[0] == row:
                raise ZeroDivisionError
            return super().read(name, box)

    sink, complete = Taking(), []
    with pytest.raises(ZeroDivisionError):
        stream(Failing(), sink, wrote=complete.append)
    assert sink.boxes == [("a", one) for one in range(row)]
    assert complete == []


def test_a_sink_that_fails():
    class Full(Taking):
        def write(self, name, box, tensor):
            if box.start[0] == 3:
                raise ZeroDivisionError
            super().write(name, box, tensor)

    source = Watching()
    with pytest.raises(ZeroDivisionError):
        stream(source, Full())
    assert {row for name, row in source.begun} <= {0, 1, 2, 3, 4}


def test_only_some_and_cast():
    sink = Taking()
    sink.taken["c"] = sink.taken["c"].bfloat16()
    stream(DictSource(LARGE), sink, ["c"], torch.bfloat16)
    assert torch.equal(sink.taken["c"], LARGE["c"].bfloat16())
    assert {name for name, _ in sink.boxes} == {"c"}
