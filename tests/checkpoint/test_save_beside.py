"""A save that is written beside the training, by one process."""

import errno
import os
import threading

import pytest
import torch
from native_case import names, store_at

from kitae.checkpoint import saving
from kitae.checkpoint.live import LiveSource
from kitae.checkpoint.parts import Task
from kitae.checkpoint.snapshot import Snapshot
from kitae.checkpoint.store import CheckpointStore
from kitae.errors import StorageError, WeightsError
from kitae.parallel.layout import Box, ParameterLayout, Piece

SHAPES = {"a": (6, 4), "b": (5,)}


def layout(name, shape):
    return ParameterLayout(name, (Piece(name, shape, shape, Box.whole(shape), shape),))


LAYOUTS = [layout(name, shape) for name, shape in SHAPES.items()]


class Training:
    """Weights and moments of which every element is the step."""

    def __init__(self):
        self.state = {
            kind: {name: torch.zeros(shape) for name, shape in SHAPES.items()}
            for kind in ("weights", "exp_avg")
        }
        self.step = 0

    def update(self):
        self.step += 1
        for tensors in self.state.values():
            for tensor in tensors.values():
                tensor.fill_(self.step)

    def begin_save(self, store, **about):
        sources = {kind: LiveSource(tensors, LAYOUTS) for kind, tensors in self.state.items()}
        given = {"state": {"step": self.step}, "config": {}, "recipe_hash": "r", **about}
        return store.begin_save(self.step, sources, **given)


@pytest.fixture
def training():
    made = Training()
    made.update()
    return made


@pytest.fixture
def gate(monkeypatch):
    """Writing waits for `.set()`."""
    usual, opened = saving.write_part, threading.Event()

    def write_part(*arguments):
        assert opened.wait(30)
        return usual(*arguments)

    monkeypatch.setattr(saving, "write_part", write_part)
    yield opened
    opened.set()


def failing(monkeypatch, error):
    def write_part(*arguments):
        raise error

    monkeypatch.setattr(saving, "write_part", write_part)


def held(store, step):
    checkpoint = store.open(step)
    return {
        v
        for kind in ("weights", "exp_avg")
        for n in SHAPES
        for v in checkpoint.source(kind).read(n).unique().tolist()
    }


def test_what_is_saved_is_the_state_when_the_save_began(tmp_path, training, gate):
    store = store_at(tmp_path)
    training.begin_save(store)
    for _ in range(3):
        training.update()
        assert store.check() is None
        assert store.latest() is None
    gate.set()
    assert store.wait() == tmp_path / "step-00000001"
    assert held(store, 1) == {1.0}
    assert store.latest().state == {"step": 1}
    assert store.wait() is store.check() is None
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "index.json", "latest", "step-00000001"}


def test_files_are_those_of_a_save_at_once(tmp_path, training):
    beside, at_once = store_at(tmp_path / "beside"), store_at(tmp_path / "at once")
    training.begin_save(beside, layouts_of=lambda rank: LAYOUTS)
    beside.wait()
    sources = {kind: LiveSource(tensors, LAYOUTS) for kind, tensors in training.state.items()}
    at_once.save(1, sources, state={"step": 1}, config={}, recipe_hash="r")
    files = [
        {p.name: p.read_bytes() for p in (s.folder / "step-00000001").iterdir()} for s in (beside, at_once)
    ]
    manifests = [one.pop("manifest.json") for one in files]
    assert files[0] == files[1]
    assert manifests[0].count(b"\n") == manifests[1].count(b"\n")


def test_check_gives_the_folder_once(tmp_path, training):
    store = store_at(tmp_path)
    training.begin_save(store)
    found = None
    while found is None:
        found = store.check()
    assert found == tmp_path / "step-00000001"
    assert store.check() is None


def test_the_next_save_waits_for_the_one_before(tmp_path, training, gate, monkeypatch):
    store, end = store_at(tmp_path), saving.Saving.end

    def open_and_end(self):
        gate.set()
        ended = end(self)
        gate.clear()
        return ended

    training.begin_save(store)
    training.update()
    monkeypatch.setattr(saving.Saving, "end", open_and_end)
    training.begin_save(store)
    assert names(tmp_path) == [1]
    store.wait()
    assert (held(store, 1), held(store, 2)) == ({1.0}, {2.0})
    gate.set()
    monkeypatch.setattr(saving.Saving, "end", end)
    training.update()
    training.begin_save(store)
    store.save(4, {}, state={}, config={}, recipe_hash="r")
    assert store.steps() == [2, 3, 4]


def test_the_copy_is_made_into_the_memory_of_the_one_before(training):
    snapshot = Snapshot()
    whole = {name: [Box.whole(shape)] for name, shape in SHAPES.items()}
    task = Task({"weights": whole}, None, "")
    places = []
    for _ in range(3):
        sources = {"weights": LiveSource(training.state["weights"], LAYOUTS)}
        copies = snapshot.take(sources, task)["weights"]
        places.append([copies.read(name).data_ptr() for name in SHAPES])
        training.update()
        assert copies.read("a", Box.whole((6, 4))).unique().tolist() == [training.step - 1]
    assert places[0] == places[1] == places[2]
    assert training.state["weights"]["a"].data_ptr() not in places[0]
    half = {name: tensor.bfloat16() for name, tensor in training.state["weights"].items()}
    copies = snapshot.take({"weights": LiveSource(half, LAYOUTS)}, task)["weights"]
    assert copies.read("a").dtype == torch.bfloat16


def test_only_what_this_rank_writes_is_copied(training):
    snapshot = Snapshot()
    sources = {"weights": LiveSource(training.state["weights"], LAYOUTS)}
    copies = snapshot.take(sources, Task({"weights": {"a": [Box((2, 0), (3, 4))]}}, ("a", "b"), "-r00001"))
    assert copies["weights"].read("a", Box((2, 0), (3, 4))).shape == (3, 4)
    with pytest.raises(KeyError):
        copies["weights"].read("b")


@pytest.mark.parametrize("ask", [CheckpointStore.check, CheckpointStore.wait, Training.begin_save])
def test_a_failure_is_raised_at_the_next_call(tmp_path, training, monkeypatch, ask):
    """A failed write never loses the last good one, and the next save works."""
    store = store_at(tmp_path)
    training.begin_save(store)
    store.wait()
    training.update()
    with monkeypatch.context() as patch:
        failing(patch, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        training.begin_save(store)
        with pytest.raises(StorageError, match=r"cannot save to .*No space left.*needed are \d"):
            until_raised(lambda: training.begin_save(store) if ask is Training.begin_save else ask(store))
    assert store.check() is None
    assert store.latest().step == 1
    assert not list(tmp_path.glob(".tmp-*"))
    training.begin_save(store)
    assert store.wait() == tmp_path / "step-00000002"


def until_raised(call):
    while call() is None:
        pass


def test_a_failure_to_publish_is_raised_too(tmp_path, training, monkeypatch):
    store = store_at(tmp_path)

    def refuse(*arguments):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(CheckpointStore, "_publish", refuse)
    training.begin_save(store)
    with pytest.raises(StorageError, match="another disk"):
        store.wait()
    assert {path.name for path in tmp_path.iterdir()} == {".lock"}


def test_a_copy_that_fails_is_a_failed_save(tmp_path, training, monkeypatch):
    store = store_at(tmp_path)
    refuse = RuntimeError("not enough memory")

    def take(*arguments):
        raise refuse

    monkeypatch.setattr(Snapshot, "take", take)
    training.begin_save(store)
    with pytest.raises(RuntimeError, match="not enough memory"):
        store.check()
    assert store.check() is None
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_state_that_is_no_json_is_refused_at_once(tmp_path, training):
    store = store_at(tmp_path)
    with pytest.raises(WeightsError, match="not plain JSON"):
        training.begin_save(store, state={"x": object()})
    assert store.wait() is None
    assert {path.name for path in tmp_path.iterdir()} == {".lock"}


def test_others_leave_a_save_under_way_alone(tmp_path, training, gate):
    """The lock is held until it is published, and given back then."""
    store, other = store_at(tmp_path), store_at(tmp_path)
    training.begin_save(store)
    assert other.clean() == []
    assert len(list(tmp_path.glob(".tmp-*"))) == 1
    gate.set()
    store.wait()
    assert other.clean() == []
    other.save(2, {}, state={}, config={}, recipe_hash="r")
    assert other.steps() == [1, 2]


def test_what_a_save_needs_is_asked_once_of_each_kind():
    """A live source works its answer out: asked for each box, a model of 64 layers paused for 0.5 s."""

    class Asked(LiveSource):
        count = 0

        def tensors(self):
            self.count += 1
            return super().tensors()

    values = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    sources = {kind: Asked(values, LAYOUTS) for kind in ("weights", "exp_avg")}
    boxes = {name: [Box.whole(shape)] for name, shape in SHAPES.items()}
    needed = Task(dict.fromkeys(sources, boxes), None, "").needed_bytes(sources)
    assert needed == 2 * ((24 + 5) * 4 + 2 * 1024)
    assert [source.count for source in sources.values()] == [1, 1]
