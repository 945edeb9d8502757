import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nxd_models import infos
from torch.utils.serialization import config as torch_config

from kitae.checkpoint.pipe import TensorInfo
from kitae.checkpoint.torch_pickle import (
    pickled_references,
    pickled_state,
    pickled_tensor,
    require_known_dtypes,
)
from kitae.checkpoint.torch_writer import TorchFile
from kitae.errors import WeightsError

STATE = {
    "a": torch.arange(5, dtype=torch.bfloat16),
    "b.c": torch.arange(21, dtype=torch.float32).view(7, 3),
    "d": torch.arange(120, dtype=torch.float16).view(2, 3, 4, 5),
    "scalar": torch.tensor(3.5, dtype=torch.float64),
}


def data(tensor):
    return memoryview(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)


def written(path, state):
    """A file of `state`, its tensors written one after the other; the size that it was said to have."""
    tensors = infos(state)
    file = TorchFile(path, pickled_state(tensors), [info.nbytes for info in tensors.values()])
    for index, tensor in enumerate(state.values()):
        file.write(index, 0, data(tensor))
    return file.size_bytes


@pytest.mark.parametrize(
    "how",
    [{"weights_only": True}, {"weights_only": False}, {"mmap": True}, {"weights_only": True, "mmap": True}],
)
def test_torch_loads_it_in_every_way(tmp_path, how):
    size = written(tmp_path / "x.pt", STATE)
    assert (tmp_path / "x.pt").stat().st_size == size
    loaded = torch.load(tmp_path / "x.pt", **how)
    assert list(loaded) == list(STATE)
    for name, tensor in STATE.items():
        assert loaded[name].dtype == tensor.dtype
        assert loaded[name].stride() == tensor.stride()
        assert torch.equal(loaded[name], tensor)


def test_bytes_are_those_of_torch_save(tmp_path):
    """Given torch's own pickle, all but the id at the end is equal: headers, padding, data, checksums."""
    (tmp_path / "torch").mkdir()
    torch.save(STATE, tmp_path / "torch" / "x.pt")
    with zipfile.ZipFile(tmp_path / "torch" / "x.pt") as archive:
        pickle = archive.read("x/data.pkl")
        end = archive.getinfo("x/.data/serialization_id").header_offset
    file = TorchFile(tmp_path / "x.pt", pickle, [tensor.nbytes for tensor in STATE.values()])
    for index, tensor in enumerate(STATE.values()):
        file.write(index, 0, data(tensor))
    ours, theirs = (tmp_path / "x.pt").read_bytes(), (tmp_path / "torch" / "x.pt").read_bytes()
    assert ours[:end] == theirs[:end]
    with zipfile.ZipFile(tmp_path / "x.pt") as archive:
        assert archive.testzip() is None


@settings(deadline=None, max_examples=30)
@given(st.randoms(use_true_random=False), st.integers(1, 9))
def test_bytes_may_come_in_any_order(tmp_path_factory, random, size):
    path = tmp_path_factory.mktemp("any") / "x.pt"
    tensors = infos(STATE)
    file = TorchFile(path, pickled_state(tensors), [info.nbytes for info in tensors.values()])
    parts = [
        (index, start, data(tensor)[start : start + size])
        for index, tensor in enumerate(STATE.values())
        for start in range(0, tensor.nbytes, size)
    ]
    random.shuffle(parts)
    for part in parts:
        file.write(*part)
    loaded = torch.load(path)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in STATE.items())
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


@pytest.mark.parametrize("calculated", [False, True])
def test_beyond_four_gigabytes(tmp_path, monkeypatch, calculated):
    """A record that is longer, and one that lies farther: their places are found, read or calculated."""
    ends = {"first": torch.tensor([1.0, 2.0]), "last": torch.tensor([3.0, 4.0, 5.0])}
    large = TensorInfo((1 << 20, 1 << 11), torch.bfloat16)
    tensors = {"first": infos(ends)["first"], "large": large, "last": infos(ends)["last"]}
    file = TorchFile(tmp_path / "x.pt", pickled_state(tensors), [info.nbytes for info in tensors.values()])
    file.write(0, 0, data(ends["first"]))
    file.write(2, 0, data(ends["last"]))
    # The hole that the large one leaves takes no disk; reading it for its checksum would take seconds.
    file._records["data/1"].checked = large.nbytes
    file._finish()
    assert (tmp_path / "x.pt").stat().st_size == file.size_bytes > 4 << 30
    monkeypatch.setenv("TORCH_SERIALIZATION_DEBUG", "1")
    with torch_config.patch("load.calculate_storage_offsets", calculated):
        loaded = torch.load(tmp_path / "x.pt", mmap=True)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in ends.items())
    assert loaded["large"].shape == large.shape
    with zipfile.ZipFile(tmp_path / "x.pt") as archive:
        assert archive.read("x/data/2") == bytes(data(ends["last"]))


def test_one_tensor_is_a_file_of_its_own(tmp_path):
    info = infos(STATE)["b.c"]
    TorchFile(tmp_path / "x.pt", pickled_tensor(info), [info.nbytes]).write(0, 0, data(STATE["b.c"]))
    assert torch.equal(torch.load(tmp_path / "x.pt", weights_only=True), STATE["b.c"])


class Reference:
    """Stands in for torch_xla's class."""

    def __init__(self, tid):
        self.tid = tid


def test_references_are_torch_xlas(tmp_path):
    TorchFile(tmp_path / "x.pt", pickled_references(["a", "b"]), [])
    with torch.serialization.safe_globals([(Reference, "torch_xla.utils.serialization.TensorReference")]):
        loaded = torch.load(tmp_path / "x.pt", weights_only=True)
    assert {name: reference.tid for name, reference in loaded.items()} == {"a": 0, "b": 1}


@pytest.mark.parametrize("kept", [["a"], ["b.c", "d"], ["a", "b.c", "d", "scalar"]])
def test_what_another_process_wrote_is_kept(tmp_path, kept):
    """The file is as if one had written it; what is kept is not given again."""
    written(tmp_path / "whole.pt", STATE)
    path = tmp_path / "x" / "whole.pt"
    path.parent.mkdir()
    sizes = [tensor.nbytes for tensor in STATE.values()]
    numbers = dict(zip(STATE, range(len(STATE)), strict=True))
    files = [TorchFile(path, pickled_state(infos(STATE)), sizes) for _ in range(2)]
    for name in kept:
        files[0].write(numbers[name], 0, data(STATE[name]))
    files[0].abort()
    for name in STATE:
        if name in kept:
            files[1].keep(STATE[name].nbytes)
    for name in STATE:
        if name not in kept:
            files[1].write(numbers[name], 0, data(STATE[name]))
    assert path.read_bytes() == (tmp_path / "whole.pt").read_bytes()


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_file_is_open_only_while_it_is_written(tmp_path):
    """Thousands of tensors' files are planned at once."""
    before = open_files()
    files = [TorchFile(tmp_path / f"{i}.pt", pickled_tensor(infos(STATE)["a"]), [10]) for i in range(9)]
    assert open_files() == before
    assert not list(tmp_path.iterdir())
    files[0].write(0, 0, data(STATE["a"])[:4])
    assert open_files() == before + 1
    files[0].write(0, 4, data(STATE["a"])[4:])
    files[1].write(0, 0, data(STATE["a"])[:4])
    files[1].abort()
    assert open_files() == before


def test_dtypes_that_cannot_be_written_are_named():
    with pytest.raises(WeightsError, match=r"only float64, .* not: x \(torch.int8\)"):
        require_known_dtypes({"x": TensorInfo((1,), torch.int8), "y": TensorInfo((1,), torch.float32)})
