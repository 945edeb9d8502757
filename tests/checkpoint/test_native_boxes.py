"""Any topology reads any: boxes of kitae's own checkpoints, cut one way and read another."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_case import DictSource, bits, grid, write_checkpoint
from safetensors.torch import load_file

from kitae.checkpoint.hashed_file import HashedFile
from kitae.checkpoint.manifest import MANIFEST_NAME, Manifest, read_manifest
from kitae.checkpoint.native import NativeSink, NativeSource
from kitae.checkpoint.pipe import TensorInfo, blocks
from kitae.errors import WeightsError
from kitae.parallel.layout import Box

CUTS = [(1, 1), (2, 1), (1, 2), (4, 1), (1, 4), (2, 2), (4, 4), (3, 5)]


@pytest.mark.parametrize("written", CUTS)
def test_every_cut_is_read_by_every_other_cut(tmp_path, written):
    """T40 for tensors: saved on one topology, resumed on another."""
    full = torch.arange(13 * 10, dtype=torch.float32).reshape(13, 10)
    write_checkpoint(tmp_path, {"w": full}, {"w": grid(full.shape, *written)})
    source = NativeSource(tmp_path)
    for cut in CUTS:
        for box in grid(full.shape, *cut):
            assert torch.equal(source.read("w", box), full[box.slices()])
    assert torch.equal(source.read("w"), full)


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_any_box_of_any_cut(tmp_path_factory, data):
    shape = (data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9)))
    dtype = data.draw(st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool]))
    full = torch.arange(shape[0] * shape[1]).reshape(shape).to(dtype)
    boxes = grid(shape, data.draw(st.integers(1, shape[0])), data.draw(st.integers(1, shape[1])))
    folder = tmp_path_factory.mktemp("cut")
    limit = data.draw(st.sampled_from([1, 64, 1 << 30]))
    write_checkpoint(folder, {"w": full}, {"w": data.draw(st.permutations(boxes))}, max_file_bytes=limit)
    start = tuple(data.draw(st.integers(0, size)) for size in shape)
    extent = tuple(data.draw(st.integers(0, size - begin)) for size, begin in zip(shape, start, strict=True))
    wanted = Box(start, extent)
    read = NativeSource(folder).read("w", wanted)
    assert read.shape == extent
    assert torch.equal(read, full[wanted.slices()])


def test_two_writers_fill_one_checkpoint(tmp_path):
    full = torch.arange(24.0).reshape(6, 4)
    infos = DictSource({"w": full}).tensors()
    manifest = Manifest("run", 1, 1, "recipe", None, {}, {}, {}, {})
    for rank, box in enumerate(grid(full.shape, 2, 1)):
        with NativeSink(tmp_path, infos, {"w": [box]}, stem=f"weights-rank{rank}") as sink:
            sink.write("w", box, full[box.slices()])
        manifest = manifest.joined("weights", sink.stored, sink.files)
    (tmp_path / MANIFEST_NAME).write_bytes(manifest.encode())
    assert sorted(manifest.files) == [f"weights-rank{rank}-f32-00001.safetensors" for rank in (0, 1)]
    assert torch.equal(NativeSource(tmp_path).read("w", Box((2, 1), (2, 2))), full[2:4, 1:3])


def test_bits_survive(tmp_path):
    """NaN payloads, -0.0, infinities and the ends of integers come back as the same bits, across cuts too."""
    single = torch.tensor([0x7FC00001, 0x7F800001, -0x80000000, 0x7F800000, 1, -1], dtype=torch.int32)
    half = torch.tensor([0x7FC1, 0x7F81, -0x8000, 0x7F80, 1, -1], dtype=torch.int16)
    tensors = {
        "f32": single.view(torch.float32).reshape(2, 3),
        "bf16": half.view(torch.bfloat16).reshape(2, 3),
        "i64": torch.tensor([[-(2**63), 2**63 - 1, 0], [1, -1, 2**53 + 1]]),
        "scalar": torch.tensor(-0.0),
        "empty": torch.empty(0, 4),
        "bool": torch.tensor([[True, False, True]]),
    }
    write_checkpoint(tmp_path, tensors, {name: grid((2, 3), 1, 3) for name in ("f32", "bf16", "i64")})
    source = NativeSource(tmp_path)
    assert source.tensors() == DictSource(tensors).tensors()
    for name, tensor in tensors.items():
        assert source.read(name).dtype == tensor.dtype
        assert torch.equal(bits(source.read(name)), bits(tensor)), name


def test_a_result_is_memory_of_its_own(tmp_path):
    write_checkpoint(tmp_path, {"w": torch.zeros(3)})
    source = NativeSource(tmp_path)
    source.read("w").fill_(7)
    assert torch.equal(source.read("w"), torch.zeros(3))


def test_whole_tensors_open_with_safetensors_alone(tmp_path):
    tensors = {"a.weight": torch.randn(3, 5), "b.weight": torch.randn(7)}
    write_checkpoint(tmp_path, tensors)
    loaded = load_file(tmp_path / "weights-f32-00001.safetensors")
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)


def test_contiguous_tensors_are_written_from_where_they_are(tmp_path, monkeypatch):
    """No copy of a large tensor, and of one that is strided only the one that is written."""
    tensors = {"w": torch.randn(6, 4), "t": torch.randn(4, 6).t(), "half": torch.randn(5).bfloat16()}
    places = []
    write = HashedFile.write
    monkeypatch.setattr(
        HashedFile,
        "write",
        lambda file, data: (places.append(np.frombuffer(data, np.uint8).ctypes.data), write(file, data))[1],
    )
    write_checkpoint(tmp_path, tensors)
    assert tensors["w"].data_ptr() in places
    assert tensors["half"].data_ptr() in places
    assert tensors["t"].data_ptr() not in places
    assert len(places) == 5  # two headers


def test_a_box_may_come_in_runs_of_rows(tmp_path):
    """The bytes are those of a box at once; a scalar, and a tensor without rows, come at once."""
    tensors = {"a": torch.randn(7, 3), "b": torch.tensor(2.0), "c": torch.zeros(0, 4), "d": torch.randn(5)}
    source = DictSource(tensors)
    write_checkpoint(tmp_path / "whole", tensors, max_file_bytes=90)
    (tmp_path / "runs").mkdir()
    with NativeSink(tmp_path / "runs", source.tensors(), max_file_bytes=90) as sink:
        for name, info in source.tensors().items():
            for box in blocks(info, 24) if 0 not in info.shape else [Box.whole(info.shape)]:
                sink.write(name, box, source.read(name, box))
    assert sink.stored["a"].boxes[0].box == Box.whole((7, 3))
    assert {name: len(stored.boxes) for name, stored in sink.stored.items()} == dict.fromkeys(tensors, 1)
    for path in (tmp_path / "runs").iterdir():
        assert path.read_bytes() == (tmp_path / "whole" / path.name).read_bytes()
    assert len(sink.files) == 2


@pytest.mark.parametrize(
    "box", [Box((2, 0), (2, 3)), Box((1, 0), (1, 2)), Box((1, 0), (4, 3)), Box((1, 0), (0, 3)), Box((), ())]
)
def test_rows_that_are_not_the_next(tmp_path, box):
    sink = NativeSink(tmp_path, {"a": TensorInfo((4, 3), torch.float32)})
    sink.write("a", Box((0, 0), (1, 3)), torch.zeros(1, 3))
    with pytest.raises(WeightsError, match=r"out of order: due is a at \(1, 0\)"):
        sink.write("a", box, torch.zeros(box.shape))
    with pytest.raises(WeightsError, match="1 boxes were announced but not written, the first of a"):
        sink.close()


def test_what_another_process_wrote_is_kept(tmp_path):
    tensors = {f"t{i}": torch.randn(10) for i in range(5)}
    source = DictSource(tensors)
    due = write_checkpoint(tmp_path / "whole", tensors, max_file_bytes=80)
    (tmp_path / "x").mkdir()
    for kept in (0, 3, 5):
        sink = NativeSink(tmp_path / "x", source.tensors(), max_file_bytes=80)
        for name in list(tensors)[:kept]:
            sink.keep(name)
        for name in list(tensors)[kept : kept + 3]:
            sink.write(name, Box.whole((10,)), tensors[name])
        (sink.abort if kept == 0 else sink.close)()
    assert sink.files == due.files
    assert sink.stored == due.tensors["weights"]
    assert sink.paths("t4") == [tmp_path / "x" / "weights-f32-00003.safetensors"]


def test_files_are_bounded_and_of_one_dtype(tmp_path):
    tensors = {f"t{i}": torch.zeros(10, dtype=torch.float32 if i % 2 else torch.bfloat16) for i in range(8)}
    manifest = write_checkpoint(tmp_path, tensors, max_file_bytes=80)
    assert sorted(manifest.files) == [
        "weights-bf16-00001.safetensors",  # 4 x 20 bytes
        "weights-f32-00001.safetensors",  # 2 x 40 bytes
        "weights-f32-00002.safetensors",
    ]
    source = NativeSource(tmp_path)
    assert all(torch.equal(source.read(name), tensor) for name, tensor in tensors.items())


def test_a_box_larger_than_a_file_has_one_of_its_own(tmp_path):
    tensors = {"a": torch.zeros(2), "b": torch.ones(100), "c": torch.zeros(2)}
    manifest = write_checkpoint(tmp_path, tensors, max_file_bytes=16)
    assert [part.file[-17:-12] for t in manifest.tensors["weights"].values() for part in t.boxes] == [
        "00001",
        "00002",
        "00003",
    ]


def test_manifest_names_what_lies_where(tmp_path):
    full = torch.zeros(4, 2)
    written = write_checkpoint(tmp_path, {"w": full, "n": torch.zeros(2)}, {"w": grid((4, 2), 2, 1)})
    manifest = read_manifest(tmp_path)
    assert manifest == written
    assert [part.key for part in manifest.tensors["weights"]["w"].boxes] == ["w@0,0+2,2", "w@2,0+2,2"]
    assert [part.key for part in manifest.tensors["weights"]["n"].boxes] == ["n"]
    path = tmp_path / "weights-f32-00001.safetensors"
    assert manifest.files[path.name].size_bytes == path.stat().st_size


def test_reading_what_is_not_there(tmp_path):
    write_checkpoint(tmp_path, {"w": torch.zeros(4, 2)})
    with pytest.raises(WeightsError, match="no tensors of kind 'exp_avg'; it holds weights"):
        NativeSource(tmp_path, "exp_avg")
    with pytest.raises(WeightsError, match="holds no tensor v"):
        NativeSource(tmp_path).read("v")
    for outside in (Box((3, 0), (2, 2)), Box((0,), (4,)), Box((-1, 0), (1, 1))):
        with pytest.raises(WeightsError, match="has no part at"):
            NativeSource(tmp_path).read("w", outside)


def test_sink_refuses_what_was_not_announced(tmp_path):
    infos = DictSource({"a": torch.zeros(4), "b": torch.zeros(4)}).tensors()
    whole = Box.whole((4,))
    with (
        pytest.raises(WeightsError, match=r"b at .* out of order: due is a at"),
        NativeSink(tmp_path, infos) as sink,
    ):
        sink.write("b", whole, torch.zeros(4))
    with (
        pytest.raises(WeightsError, match=r"got \(4,\) torch.bfloat16"),
        NativeSink(tmp_path, infos, stem="x") as sink,
    ):
        sink.write("a", whole, torch.zeros(4, dtype=torch.bfloat16))
    incomplete = NativeSink(tmp_path, infos, stem="y")
    incomplete.write("a", whole, torch.zeros(4))
    with pytest.raises(WeightsError, match="1 boxes were announced but not written, the first of b"):
        incomplete.close()
    finished = NativeSink(tmp_path, {"a": infos["a"]}, stem="z")
    finished.write("a", whole, torch.zeros(4))
    with pytest.raises(WeightsError, match="due is nothing more"):
        finished.write("a", whole, torch.zeros(4))
    finished.close()
