"""kill -9 in the middle of saves: a complete step is always found, and the next save works."""

import multiprocessing
import os
import random
import signal
import time

import pytest
import torch
from native_case import names, store_at
from native_victims import put, put_beside, save_and_die_at, save_until_killed, save_without_end

SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(["kitae.checkpoint.store"])


def run(target, *args):
    """Start a process that has torch loaded already."""
    process = SPAWN.Process(target=target, args=args, daemon=True)
    process.start()
    return process


def finish(process):
    process.join(30)
    assert process.exitcode is not None, "the saving process hangs"
    return process.exitcode


def check_whole(store, steps):
    """The newest step is one of `steps`, verified by hash, and holds what was saved under its number."""
    checkpoint = store.latest(verify=True)
    assert checkpoint.step in steps
    for kind in ("weights", "exp_avg"):
        assert torch.all(checkpoint.source(kind).read("w") == checkpoint.state["value"])
    return checkpoint.step


def check_next_save(store, step):
    """Another save works, and clears what the dead one left."""
    put(store, step)
    assert check_whole(store, {step}) == step
    assert not list(store.folder.glob(".tmp-*"))
    assert not list(store.folder.glob(".old-*"))
    assert not list(store.folder.glob(".trash-*"))


def test_twenty_kills_at_random_moments(tmp_path):
    """Case 10 of the field: kill -9 at 20 random points of saves; no step that was reported saved is lost."""
    moments = random.Random(20)
    store = store_at(tmp_path, keep=2)
    saved = SPAWN.Value("q", 0)
    for _ in range(20):
        process = run(save_until_killed, tmp_path, 300_000, saved)
        before = saved.value
        deadline = time.monotonic() + 30
        while saved.value == before and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.03))
        os.kill(process.pid, signal.SIGKILL)
        assert finish(process) == -signal.SIGKILL
        assert check_whole(store, {saved.value, saved.value + 1}) >= 1
    check_next_save(store, store.latest().step + 1)


@pytest.mark.parametrize(
    ("step", "fewest", "how"),
    [(3, 14, put), (2, 12, put), (1, 12, put), (3, 14, put_beside)],
    ids=["next step", "replaced step", "older step", "beside the training"],
)
def test_a_kill_before_every_call_that_matters(tmp_path, step, fewest, how):
    call, code = 0, None
    while code != 0:
        call += 1
        folder = tmp_path / str(call)
        store = store_at(folder, keep=2)
        for earlier in (1, 2):
            put(store, earlier)
        code = finish(run(save_and_die_at, folder, call, step, 77, how))
        assert code in (0, -signal.SIGKILL)
        check_whole(store, {2, step} if code else {step})
        if code == 0:
            assert store.latest().state["value"] == 77
        check_next_save(store, 4)
        assert len(names(folder)) <= 2
    assert call > fewest


def test_a_single_step_that_is_replaced_is_never_lost(tmp_path):
    """With keep 1 there is nothing to fall back to but the step that is just being replaced."""
    call, code = 0, None
    while code != 0:
        call += 1
        store = store_at(tmp_path / str(call), keep=1)
        put(store, 5)
        code = finish(run(save_and_die_at, store.folder, call, 5, 6))
        assert store.latest().state["value"] in (5, 6)
        check_whole(store, {5})
        store.clean()
        check_whole(store, {5})
        assert names(store.folder) == [5]
    assert call > 12


def test_clean_spares_a_live_save_and_clears_a_dead_one(tmp_path):
    store = store_at(tmp_path)
    put(store, 1)
    reading = SPAWN.Event()
    process = run(save_without_end, tmp_path, reading)
    assert reading.wait(30)
    assert store.clean() == []
    assert len(list(tmp_path.glob(".tmp-*"))) == 1
    assert store.latest().step == 1
    os.kill(process.pid, signal.SIGKILL)
    finish(process)
    (tmp_path / ".tmp-notes").mkdir()
    [line] = store.clean()
    assert line.startswith("removed ")
    assert "step-00000002" in line
    assert [path.name for path in tmp_path.glob(".tmp-*")] == [".tmp-notes"]
