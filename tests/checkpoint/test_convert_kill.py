"""Conversions that are ended in the middle: nothing looks complete, and the next one goes on."""

from __future__ import annotations

import errno
import multiprocessing
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from convert_case import (
    HF,
    STEP,
    convert_and_die,
    convert_and_die_at,
    convert_and_die_in,
    converted,
    count_reads,
    left_in,
    training,
)
from nxd_case import FIXTURE, Cut

from kitae.checkpoint import stream
from kitae.checkpoint.convert import convert
from kitae.checkpoint.convert_home import held_bytes
from kitae.checkpoint.convert_options import Options
from kitae.checkpoint.hashed_file import HashedFile
from kitae.checkpoint.journal import Journal, read_journal
from kitae.checkpoint.opened import open_weights
from kitae.checkpoint.safetensors_writer import SafetensorsWriter
from kitae.checkpoint.torch_writer import TorchFile
from kitae.errors import ProofError, StorageError
from kitae.storage.folders import JOURNAL_NAME

SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(["kitae.checkpoint.convert"])
CASES = {
    "to nxd": (HF, {"to": "nxd", "tp": 4}),
    "to nxd stages": (HF, {"to": "nxd", "tp": 2, "pp": 2, "fused_qkv": True}),
    "to xser": (HF, {"to": "nxd", "tp": 2, "xser": True}),
    "to hf": (FIXTURE / "qkv_kv2", {"config": HF}),
    "to kitae": (HF, {"to": "kitae", "dtype": "bf16"}),
}
WRITES = {
    "to hf": (SafetensorsWriter, 12),
    "to kitae": (HashedFile, 12),
    "to nxd": (TorchFile, 60),
    "to xser": (TorchFile, 30),
}
"""What writes a file, and how many of its writes there is room for."""


def killed(target, *given):
    process = SPAWN.Process(target=target, args=given, daemon=True)
    process.start()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def going_on(said):
    """What was said of the tensors that were there."""
    return [line.removeprefix("going on: ") for line in said if line.startswith("going on")]


def contents(folder):
    """All files of a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What an uninterrupted conversion gives, and the tensors in the order of reading."""
    made = {}

    def of(name):
        if name not in made:
            source, options = CASES[name]
            out = tmp_path_factory.mktemp("whole") / "out"
            converted(source, out, proof="values", **options)
            made[name] = contents(out)
        return made[name]

    return of


@pytest.fixture
def read(monkeypatch):
    """The tensors that this process reads to write them."""
    names, usual = [], stream._read
    monkeypatch.setattr(stream, "_read", lambda *given: names.append(given[1]) or usual(*given))
    return names


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("count", [0, 1, 11, 20])
def test_kill(tmp_path, name, count, whole, read):
    """SIGKILL at the first, the second, a middle and the last tensor: the others are not read again."""
    source, options = CASES[name]
    assert killed(convert_and_die, source, tmp_path / "out", count, options)
    (left,) = left_in(tmp_path)
    assert left.startswith(".tmp-out-")
    _, said = converted(source, tmp_path / "out", proof="values", **options)
    assert going_on(said) == ([f"{count} of 21 tensors are there"] if count else [])
    assert len(read) == len(set(read)) == 21 - count
    assert left_in(tmp_path) == ["out"]
    assert contents(tmp_path / "out") == whole(name)


@pytest.mark.parametrize("name", ["to hf", "to xser", "to kitae"])
def test_kill_again_and_again(tmp_path, name, whole, read):
    source, options = CASES[name]
    for _ in range(4):
        assert killed(convert_and_die, source, tmp_path / "out", 5, options)
        assert len(left_in(tmp_path)) == 1
    _, said = converted(source, tmp_path / "out", proof="values", **options)
    assert going_on(said) == ["20 of 21 tensors are there"]
    assert len(read) == 1
    assert contents(tmp_path / "out") == whole(name)


@pytest.mark.parametrize("name", ["to hf", "to nxd", "to kitae"])
@pytest.mark.parametrize("where", ["prove", "_publish"])
def test_kill_when_all_is_written(tmp_path, name, where, whole, read):
    """Then only the proof is left to do."""
    source, options = CASES[name]
    assert killed(convert_and_die_in, where, source, tmp_path / "out", options)
    _, said = converted(source, tmp_path / "out", proof="values", **options)
    assert going_on(said) == ["21 of 21 tensors are there"]
    assert "proof: 21 tensors used once" in " ".join(said)
    assert read == []
    assert contents(tmp_path / "out") == whole(name)


@pytest.mark.parametrize(("name", "stride"), [("to nxd", 6), ("to hf", 3), ("to kitae", 4), ("to xser", 20)])
def test_kill_before_calls_that_matter(tmp_path, name, stride, whole):
    """Whatever was on the disk: the target is not there, and the next conversion makes all of it."""
    source, options = CASES[name]
    call = 0
    while killed(convert_and_die_at, call, source, tmp_path / str(call) / "out", options):
        folder = tmp_path / str(call)
        if "out" in left_in(folder):
            assert contents(folder / "out") == whole(name)
        converted(source, folder / "out", proof="values", **options)
        assert left_in(folder) == ["out"]
        assert contents(folder / "out") == whole(name)
        call += stride
    assert contents(tmp_path / str(call) / "out") == whole(name)
    assert call // stride > 4


def test_kill_in_the_optimizers_state(tmp_path, read):
    source = tmp_path / "run" / "step_7"
    state = training(source, Cut())
    options = {"to": "kitae", "config": HF}
    assert killed(convert_and_die, source, tmp_path / "out", 50, options)
    _, said = converted(source, tmp_path / "out", proof="values", **options)
    assert going_on(said) == ["50 of 63 tensors are there"]
    assert len(read) == 13
    opened = open_weights(tmp_path / "out")
    found = opened.optimizer()
    assert found.step == STEP
    for kind in ("exp_avg", "exp_avg_sq"):
        for name, tensor in state[kind].items():
            assert found.moments[kind].read(name).equal(tensor)


@pytest.mark.parametrize("name", CASES)
def test_ctrl_c(tmp_path, name, monkeypatch, whole, read):
    """What is complete stays and is told, and the same command goes on."""
    source, options = CASES[name]
    said = []
    with monkeypatch.context() as patch:
        patch.setattr(stream, "_read", stream._read)
        count_reads(12, lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            convert(source, tmp_path / "out", Options(proof="values", **options), said.append)
    (left,) = left_in(tmp_path)
    assert said[-1] == (
        f"12 of 21 tensors stay in {tmp_path / left}: the same command goes on from them; remove the folder "
        "to give them up"
    )
    read.clear()
    _, said = converted(source, tmp_path / "out", proof="values", **options)
    assert going_on(said) == ["12 of 21 tensors are there"]
    assert len(read) == 9
    assert contents(tmp_path / "out") == whole(name)


@pytest.mark.parametrize("name", WRITES)
def test_a_full_disk_and_then_room(tmp_path, name, monkeypatch, whole, read):
    source, options = CASES[name]
    writer, room = WRITES[name]
    write, calls, said = writer.write, iter(range(room)), []

    def full(*given):
        if next(calls, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(*given)

    with monkeypatch.context() as patch:
        patch.setattr(writer, "write", full)
        with pytest.raises(StorageError, match=r"cannot save to .*/out: No space left on device"):
            convert(source, tmp_path / "out", Options(proof="values", **options), said.append)
    assert len(left_in(tmp_path)) == 1
    done = int(said[-1].split(" of 21 tensors stay in ")[0])
    read.clear()
    _, said = converted(source, tmp_path / "out", proof="values", **options)
    assert going_on(said) == [f"{done} of 21 tensors are there"]
    assert 0 < len(read) == 21 - done < 21
    assert contents(tmp_path / "out") == whole(name)


@pytest.fixture
def interrupted(tmp_path):
    """A conversion of a copy that was killed after 11 tensors; the copy and the hidden folder."""
    source = shutil.copytree(HF, tmp_path / "source")
    assert killed(convert_and_die, source, tmp_path / "out", 11, {"to": "nxd", "tp": 2})
    return source, next(tmp_path.glob(".tmp-out-*"))


def test_what_is_there_counts_as_room(tmp_path, interrupted, monkeypatch):
    """A dry run says so, too, and leaves it as it is."""
    source, left = interrupted
    kept = held_bytes([left])
    options = {"to": "nxd", "tp": 2, "proof": "values"}
    _, said = converted(source, tmp_path / "out", dry_run=True, **options)
    assert f"{kept:,} bytes are there, from an interrupted conversion that goes on" in said
    needed = int(said[-1].split(" needs ")[1].split(" bytes")[0].replace(",", ""))
    monkeypatch.setattr("kitae.storage.disk.free_bytes", lambda path: needed - kept - 100)
    with pytest.raises(StorageError, match="No space"):
        converted(source, tmp_path / "out", **options)
    monkeypatch.setattr("kitae.storage.disk.free_bytes", lambda path: needed - kept)
    assert going_on(converted(source, tmp_path / "out", **options)[1]) == ["11 of 21 tensors are there"]


@pytest.mark.parametrize("cut", [1, 40])
def test_a_torn_line_of_the_journal_counts_for_nothing(tmp_path, interrupted, cut, read):
    source, left = interrupted
    journal = left / JOURNAL_NAME
    journal.write_bytes(journal.read_bytes()[:-cut])
    _, said = converted(source, tmp_path / "out", to="nxd", tp=2, proof="values")
    assert going_on(said) == ["10 of 21 tensors are there"]
    assert len(read) == 11


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("source", "source files: .*model.safetensors changed"),
        ("dtype", "dtype: None there, fp32 now"),
    ],
)
def test_another_conversion_starts_afresh(tmp_path, interrupted, change, words, read):
    """Its result follows from something else, so nothing of it is taken."""
    source, left = interrupted
    options = {"to": "nxd", "tp": 2, "proof": "values"}
    if change == "source":
        os.utime(source / "model.safetensors", ns=(1, 1))
    else:
        options["dtype"] = "fp32"
    _, said = converted(source, tmp_path / "out", **options)
    assert re.search(f"what was begun there is of another conversion .{words}.: it starts afresh", str(said))
    assert f"removed {left}, left by an interrupted save" in said
    assert going_on(said) == []
    assert len(read) == 21
    assert left_in(tmp_path) == ["out", "source"]


@pytest.mark.parametrize("change", [Path.unlink, lambda path: os.truncate(path, 600)])
def test_a_file_that_is_gone_or_shorter_since(tmp_path, interrupted, change, read):
    """Somebody has cleaned up, or the disk did not hold what it said: all is made again."""
    source, left = interrupted
    change(next(left.rglob("*_tp_rank_01_*.pt")))
    _, said = converted(source, tmp_path / "out", to="nxd", tp=2, proof="values")
    assert going_on(said) == []
    assert len(read) == 21
    assert left_in(tmp_path) == ["out", "source"]


def test_without_locks_it_starts_afresh(tmp_path, interrupted, monkeypatch, read):
    """Nobody knows there whether the other one lives; its process does not."""
    source, left = interrupted

    def no_locks(*given):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr("fcntl.flock", no_locks)
    _, said = converted(source, tmp_path / "out", to="nxd", tp=2, proof="values")
    assert f"removed {left}, left by an interrupted save" in said
    assert len(read) == 21
    assert left_in(tmp_path) == ["out", "source"]


@pytest.mark.parametrize("name", ["to hf", "to nxd", "to kitae"])
def test_with_another_proof(tmp_path, name, whole, read):
    """What was written with --proof none was not looked at, so it is read again when that is asked for."""
    source, options = CASES[name]
    out = tmp_path / "out"
    assert killed(convert_and_die, source, out, 5, options)
    assert killed(convert_and_die, source, out, 6, {**options, "proof": "none"})
    assert killed(convert_and_die, source, out, 3, options)
    _, said = converted(source, out, **{**options, "proof": "values"})
    assert going_on(said) == ["8 of 21 tensors are there"]
    assert len(read) == 13
    assert contents(out) == whole(name)
    assert killed(convert_and_die_in, "_publish", source, tmp_path / "two", {**options, "proof": "none"})
    assert killed(convert_and_die, source, tmp_path / "two", 20, options)
    _, said = converted(source, tmp_path / "two", **{**options, "proof": "none"})
    assert going_on(said) == ["21 of 21 tensors are there"]


def test_what_cannot_come_right_is_not_kept(tmp_path, interrupted, monkeypatch):
    """After an error of the source or of the proof there is nothing to go on with."""
    source, _ = interrupted

    def wrong(*given, **named):
        raise ProofError("not equal")

    monkeypatch.setattr("kitae.checkpoint.convert.prove", wrong)
    with pytest.raises(ProofError):
        converted(source, tmp_path / "out", to="nxd", tp=2, proof="values")
    assert left_in(tmp_path) == ["source"]


def test_a_living_conversion_to_the_same_place_is_spared(tmp_path):
    """Its hidden folder is another; whoever ends first has the name. An old one is known by its process."""
    old = tmp_path / f".tmp-out-{1}-0123abcd"
    old.mkdir()
    # The number of a process that is gone, as on another machine: the lock tells.
    theirs = Journal.begin(tmp_path / ".tmp-out-4194305-0123abcd", {"made": 1}, checked=True)
    converted(HF, tmp_path / "out", to="hf", proof="none")
    assert left_in(tmp_path) == [old.name, theirs.folder.name, "out"]
    theirs.close()


def test_the_living_are_not_gone_on_with(tmp_path, interrupted):
    source, left = interrupted
    made = read_journal(left).made
    theirs = Journal.take_over(left, tmp_path / ".tmp-out-4194305-0123abcd", checked=True)
    assert theirs.count == 11
    _, said = converted(source, tmp_path / "out", to="nxd", tp=2, proof="values")
    assert going_on(said) == []
    assert read_journal(theirs.folder).made == made
    theirs.close()
    _, said = converted(source, tmp_path / "out", to="nxd", tp=2, proof="values")
    assert said[-1].endswith("skipped")
    assert left_in(tmp_path) == ["out", "source"]
