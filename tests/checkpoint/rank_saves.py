"""What ranks do in processes of their own: they save, some of them fail or are killed on the way."""

import os
import signal
from functools import partial
from pathlib import Path

from native_case import store_at
from topology_case import Topology, filled, full_state, local_state, sources_of

from kitae.checkpoint import saving
from kitae.checkpoint.manifest import MANIFEST_NAME
from kitae.checkpoint.resume import open_checkpoint
from kitae.errors import KitaeError


def topology_of(mesh, zero):
    return Topology(mesh.tensor.size, mesh.control.size // mesh.tensor.size, zero)


def given(mesh, step, zero=True):
    """What a rank passes to a save of a state that depends on the step."""
    topology = topology_of(mesh, zero)
    layouts = topology.layouts(mesh.rank)
    sources = sources_of(layouts, local_state(layouts, full_state(seed=step)))
    about = {"state": {"step": step}, "config": {}, "recipe_hash": "r", "layouts_of": topology.layouts}
    return (step, sources), about


def save(mesh, folder, step, zero=True):
    """Save together; the name of the folder."""
    arguments, about = given(mesh, step, zero)
    return store_at(folder, control=mesh.control).save(*arguments, **about).name


def read(mesh, path, zero):
    """Read what this rank holds of a checkpoint; by kind and parameter."""
    checkpoint = open_checkpoint(path)
    return filled(topology_of(mesh, zero).layouts(mesh.rank), checkpoint.source)


def fail_at(failing):
    """Let the writing of this process's part fail in the given way."""

    def write_part(*arguments):
        raise failing

    saving.write_part = write_part


def message_of(call):
    """What a call raises, or None."""
    try:
        call()
    except KitaeError as error:
        return f"{type(error).__name__}: {error}"
    return None


def save_failing(mesh, folder, rank, failing):
    """A good save, one that fails on one rank, another good one; what the second said, twice."""
    usual = saving.write_part
    store = store_at(folder, control=mesh.control)
    messages = []
    for step, method in (
        (1, store.save),
        (2, store.save),
        (3, partial(begin_and_wait, store)),
        (4, store.save),
    ):
        arguments, about = given(mesh, step)
        saving.write_part = usual
        if step in (2, 3) and mesh.rank == rank:
            fail_at(failing)
        messages.append(message_of(partial(method, *arguments, **about)))
        assert not [path for path in Path(folder).glob(".tmp-*") if messages[-1] and mesh.rank == 0]
        mesh.control.barrier()
    return messages


def begin_and_wait(store, *arguments, **about):
    store.begin_save(*arguments, **about)
    store.wait()


def steps_beside(mesh, folder):
    """Begin a save and train on, with a check a step, while a rank is slow; what the checks gave."""
    store = store_at(folder, control=mesh.control)
    usual, allowed = saving.write_part, Path(folder) / "allowed"

    def slow(*arguments):
        while mesh.rank == 1 and not allowed.exists():
            os.sched_yield()
        return usual(*arguments)

    saving.write_part = slow
    arguments, about = given(mesh, 5)
    store.begin_save(*arguments, **about)
    found = []
    for step in range(20):
        for source in arguments[1].values():
            for name in source.tensors():
                for box in source.boxes(name):
                    source.view(name, box).fill_(step)
        found.append(store.check())
        if step == 19 and mesh.rank == 0:
            allowed.write_text("")
    found.append(store.wait())
    return [None if path is None else path.name for path in found], store.check()


def failing_beside(mesh, folder):
    """A save fails on one rank while all train on; the step at which each of them is told, and how."""
    store = store_at(folder, control=mesh.control)
    if mesh.rank == 2:
        fail_at(OSError(28, "No space left on device"))
    arguments, about = given(mesh, 5)
    store.begin_save(*arguments, **about)
    for step in range(100_000):
        message = message_of(store.check)
        if message is not None:
            return step, message, store.wait()
    raise AssertionError("nobody was told")


def save_and_die(mesh, folder, beside, rank=1):
    """A good save; in the next one a rank is killed once its files are written, before it says so."""
    save(mesh, folder, 1)
    usual = saving.write_part

    def write_part(*arguments):
        part = usual(*arguments)
        if mesh.rank == rank:
            os.kill(os.getpid(), signal.SIGKILL)
        return part

    saving.write_part = write_part
    arguments, about = given(mesh, 2)
    store = store_at(folder, control=mesh.control)
    (partial(begin_and_wait, store) if beside else store.save)(*arguments, **about)


def save_and_lead_to_death(mesh, folder, beside):
    """The same, of the leading rank."""
    save_and_die(mesh, folder, beside, rank=0)


def die_publishing(mesh, folder, beside):
    """All parts are written; the leading rank is killed when it writes the manifest."""
    save(mesh, folder, 1)
    from kitae.checkpoint import store as module

    def write_synced(path, content):
        assert path.name == MANIFEST_NAME
        os.kill(os.getpid(), signal.SIGKILL)

    module.write_synced = write_synced
    arguments, about = given(mesh, 2)
    store = store_at(folder, control=mesh.control)
    (partial(begin_and_wait, store) if beside else store.save)(*arguments, **about)
