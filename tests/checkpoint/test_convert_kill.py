"""Conversions that are ended in the middle: nothing is there that looks complete, and the next one works."""

from __future__ import annotations

import multiprocessing
import signal

import pytest
from convert_case import HF, convert_and_die, converted, left_in
from hf_case import all_tensors, assert_same
from nxd_case import FIXTURE

from kitae.checkpoint.wrapped import Counting

SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(["kitae.checkpoint.convert"])
CASES = {
    "to nxd": (HF, {"to": "nxd", "tp": 4}),
    "to xser": (HF, {"to": "nxd", "tp": 2, "xser": True}),
    "to hf": (FIXTURE / "qkv_kv2", {"config": HF}),
    "to kitae": (HF, {"to": "kitae"}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("count", [0, 11, 20])
def test_kill(tmp_path, name, count):
    """SIGKILL at the first, a middle and the last tensor."""
    source, options = CASES[name]
    process = SPAWN.Process(target=convert_and_die, args=(source, tmp_path / "out", count, options))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    (left,) = left_in(tmp_path)
    assert left.startswith(".tmp-out-")
    _, said = converted(source, tmp_path / "out", proof="values", **options)
    assert any(line.startswith("removed ") and "left by an interrupted" in line for line in said)
    assert left_in(tmp_path) == ["out"]
    if name == "to hf":
        assert_same(all_tensors(HF), all_tensors(tmp_path / "out"))


@pytest.mark.parametrize("name", CASES)
def test_interrupt(tmp_path, name, monkeypatch):
    """Ctrl-C cleans up at once."""
    source, options = CASES[name]
    calls = iter(range(12))

    read = Counting.read
    monkeypatch.setattr(Counting, "read", lambda self, *given: _or_interrupt(calls, read, self, *given))
    with pytest.raises(KeyboardInterrupt):
        converted(source, tmp_path / "out", proof="values", **options)
    assert left_in(tmp_path) == []


def _or_interrupt(calls, read, *given):
    if next(calls, None) is None:
        raise KeyboardInterrupt
    return read(*given)


def test_a_living_conversion_to_the_same_place_is_spared(tmp_path):
    """Its hidden folder is another; whoever ends first has the name."""
    other = tmp_path / f".tmp-out-{1}-0123abcd"
    other.mkdir()
    converted(HF, tmp_path / "out", to="hf", proof="none")
    assert left_in(tmp_path) == [other.name, "out"]
