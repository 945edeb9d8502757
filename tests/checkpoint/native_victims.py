"""What runs in processes that are killed; imports no more than it needs, because they are many."""

import os
import shutil
import signal
import time
from pathlib import Path

import torch
from native_case import DictSource, store_at

from kitae.checkpoint.live import LiveSource
from kitae.parallel.layout import Box, ParameterLayout, Piece

CALLS = ((os, "fsync"), (Path, "rename"), (Path, "replace"), (shutil, "rmtree"))


def sources(step, size):
    return {kind: DictSource({"w": torch.full((size,), float(step))}) for kind in ("weights", "exp_avg")}


def put(store, step, value=None, size=64):
    value = step if value is None else value
    state = {"step": step, "value": value}
    return store.save(step, sources(value, size), state=state, config={}, recipe_hash="r")


def put_beside(store, step, value):
    """The same beside whatever else goes on, to the end."""
    layouts = [ParameterLayout("w", (Piece("w", (64,), (64,), Box.whole((64,)), (64,)),))]
    held = {kind: LiveSource(source.held, layouts) for kind, source in sources(value, 64).items()}
    store.begin_save(step, held, state={"step": step, "value": value}, config={}, recipe_hash="r")
    return store.wait()


def save_until_killed(folder, size, saved):
    store = store_at(folder, keep=2)
    newest = store.latest()
    step = 0 if newest is None else newest.step
    while True:
        step += 1
        put(store, step, size=size)
        saved.value = step


def save_and_die_at(folder, call, step, value, how=put):
    """Save, and die right before the call of that number among those that order a save on the disk."""
    count = 0

    def counted(original):
        def wrapper(*args, **options):
            nonlocal count
            count += 1
            if count == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **options)

        return wrapper

    for owner, name in CALLS:
        setattr(owner, name, counted(getattr(owner, name)))
    how(store_at(folder, keep=2), step, value)
    os._exit(0)


class Waiting(DictSource):
    """A source that says when it is read, and then takes for ever."""

    def __init__(self, reading):
        super().__init__({"w": torch.zeros(4)})
        self.reading = reading

    def read(self, name, box=None):
        self.reading.set()
        time.sleep(60)


def save_without_end(folder, reading):
    store_at(folder).save(2, {"weights": Waiting(reading)}, state={}, config={}, recipe_hash="r")
