from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hf_case import all_tensors, assert_same
from hypothesis import given, settings
from hypothesis import strategies as st
from native_case import DictSource
from safetensors import safe_open

from kitae.checkpoint import hf_sink
from kitae.checkpoint.export import export
from kitae.checkpoint.hf import HfSink, HfSource
from kitae.checkpoint.pipe import TensorInfo
from kitae.checkpoint.stream import stream
from kitae.errors import StorageError, WeightsError
from kitae.parallel.layout import Box

TENSORS = {
    "model.embed_tokens.weight": torch.arange(60.0).reshape(10, 6),
    "model.norm.weight": torch.arange(6.0).to(torch.bfloat16),
    "lm_head.weight": torch.arange(60.0).reshape(10, 6).flip(0),
}
CONFIG = {
    "model_type": "llama",
    "dtype": "float16",
    "unknown": {"kept": [1, None]},
    "tie_word_embeddings": True,
}


def write(folder: Path, tensors: dict[str, torch.Tensor] = TENSORS, **options: object) -> Path:
    source = DictSource(tensors)
    with HfSink(folder, source.tensors(), **{"config": CONFIG, **options}) as sink:  # type: ignore[arg-type]
        stream(source, sink)
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_one_file(tmp_path: Path) -> None:
    """T15: the metadata say pt."""
    folder = write(tmp_path / "out")
    assert names(folder) == {"model.safetensors", "config.json", "kitae_export.json"}
    assert_same(all_tensors(folder), TENSORS)
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_shards_and_index(tmp_path: Path) -> None:
    """T01: the index names exactly the tensors in the files."""
    folder = write(tmp_path / "out", max_shard_bytes=260)
    files = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}
    assert names(folder) == {*files, "model.safetensors.index.json", "config.json", "kitae_export.json"}
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 240 + 12 + 240}
    for name, file in index["weight_map"].items():
        with safe_open(folder / file, "pt") as opened:
            assert name in opened.keys()  # noqa: SIM118
    assert_same(all_tensors(folder), TENSORS)
    assert set(index["weight_map"]) == set(TENSORS)


def test_tensor_larger_than_a_shard_has_its_own() -> None:
    infos = {
        name: TensorInfo((size,), torch.int8) for name, size in {"a": 5, "b": 50, "c": 5, "d": 5}.items()
    }
    plan = hf_sink.plan_shards(infos, 10)
    assert list(plan.values()) == [["a"], ["b"], ["c", "d"]]


def test_config_tells_the_truth_and_keeps_the_rest(tmp_path: Path) -> None:
    """T07: unknown keys are kept whole."""
    config = json.loads((write(tmp_path / "out") / "config.json").read_text())
    assert config == {**CONFIG, "dtype": "float32", "tie_word_embeddings": False}


def test_rope_that_only_transformers_5_reads_is_written_in_both_spellings(tmp_path: Path) -> None:
    """Version 4 takes theta 10000 without a word where it finds none."""
    new = {"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 4.0}}
    older = {"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    info = {"a": TensorInfo((1,), torch.float32)}
    found = hf_sink.true_config(new, info)
    assert found == {**new, **older, "dtype": "float32", "tie_word_embeddings": True}
    default = {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}}
    for told in (default, older, {**new, **older}):
        assert {"dtype", "tie_word_embeddings", *told} == hf_sink.true_config(told, info).keys()


def test_tied_head_is_not_written_and_old_key_of_dtype_is_kept(tmp_path: Path) -> None:
    tensors = {name: t.to(torch.bfloat16) for name, t in TENSORS.items() if name != "lm_head.weight"}
    folder = write(tmp_path / "out", tensors, config={"torch_dtype": "x"})
    assert json.loads((folder / "config.json").read_text()) == {
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": True,
    }


def test_tokenizer_and_generation_config(tmp_path: Path) -> None:
    (tmp_path / "tokenizer").mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "pytorch_model.bin"):
        (tmp_path / "tokenizer" / name).write_text("{}")
    folder = write(
        tmp_path / "out", tokenizer_folder=tmp_path / "tokenizer", generation_config={"eos_token_id": 2}
    )
    assert names(folder) >= {"tokenizer.json", "tokenizer_config.json"}
    assert "pytorch_model.bin" not in names(folder)
    assert json.loads((folder / "generation_config.json").read_text()) == {"eos_token_id": 2}


def test_older_export_with_more_files_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """T16: exactly the new files, matching the index."""
    folder = write(tmp_path / "out", max_shard_bytes=10)
    (folder / "proof.json").write_text("{}")
    assert len(list(folder.glob("*.safetensors"))) == 3
    write(folder, max_shard_bytes=260)
    assert len(list(folder.glob("*.safetensors"))) == 2
    assert_same({name: HfSource(folder).read(name) for name in TENSORS}, TENSORS)
    assert names(tmp_path) == {"out"}


@pytest.mark.parametrize("marked", [True, False])
def test_folder_of_somebody_else_is_refused(tmp_path: Path, marked: bool) -> None:
    """T16: never a mix, never a loss."""
    folder = tmp_path / "out"
    if marked:
        write(folder)
    folder.mkdir(exist_ok=True)
    (folder / "notes.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(WeightsError, match=r"notes.txt.*not replaced"):
        write(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert names(tmp_path) == {"out"}


def test_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(WeightsError, match=r"is a file"):
        write(tmp_path / "out")


def test_error_half_way_leaves_the_old_export(tmp_path: Path) -> None:
    folder = write(tmp_path / "out")
    sink = HfSink(folder, DictSource(TENSORS).tensors(), config={})
    with pytest.raises(WeightsError), sink:
        stream(DictSource({"model.norm.weight": torch.zeros(6), "other": torch.zeros(1)}), sink)
    assert_same(all_tensors(folder), TENSORS)
    assert names(tmp_path) == {"out"}


def _die_half_way(folder: Path) -> None:
    sink = HfSink(folder, DictSource(TENSORS).tensors(), config={})
    sink.write("model.norm.weight", Box.whole((6,)), torch.zeros(6))
    os.kill(os.getpid(), signal.SIGKILL)


def test_export_killed_half_way_leaves_the_old_one(tmp_path: Path) -> None:
    folder = write(tmp_path / "out")
    process = multiprocessing.get_context("fork").Process(target=_die_half_way, args=(folder,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert_same(all_tensors(folder), TENSORS)
    assert len(names(tmp_path)) == 2
    write(folder, max_shard_bytes=10)
    assert_same(all_tensors(folder), TENSORS)
    assert names(tmp_path) == {"out"}


def test_what_a_killed_export_left_is_cleared(tmp_path: Path) -> None:
    """Killed while writing: its folder goes. Killed between the renames: the old export comes back."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    write(tmp_path / "out").rename(tmp_path / f".old-out-{dead.pid}-00000000")
    (tmp_path / f".tmp-out-{dead.pid}-00000000").mkdir()
    (tmp_path / f".tmp-other-{dead.pid}-00000000").mkdir()
    (tmp_path / f".tmp-out-{os.getppid()}-00000000").mkdir()
    HfSink(tmp_path / "out", DictSource(TENSORS).tensors(), config={}).abort()
    assert_same(all_tensors(tmp_path / "out"), TENSORS)
    left = {"out", f".tmp-other-{dead.pid}-00000000", f".tmp-out-{os.getppid()}-00000000"}
    assert names(tmp_path) == left


@pytest.mark.parametrize(
    ("box", "shape", "message"),
    [
        (Box((0, 0), (10, 6)), (10, 5), r"values of shape \(10, 5\) where shape \(10, 6\)"),
        (Box((1, 0), (10, 6)), (10, 6), r"does not fit the shape \(10, 6\)"),
        (Box((0,), (10,)), (10,), r"does not fit the shape \(10, 6\)"),
        (Box((9, 5), (1, 1)), (1, 1), "was written twice"),
    ],
)
def test_boxes_that_do_not_fit(tmp_path: Path, box: Box, shape: tuple[int, ...], message: str) -> None:
    sink = HfSink(tmp_path / "out", DictSource(TENSORS).tensors(), config={})
    sink.write("lm_head.weight", Box((5, 0), (5, 6)), torch.zeros(5, 6))
    with pytest.raises(WeightsError, match=rf"tensor lm_head.weight.*{message}"), sink:
        sink.write("lm_head.weight", box, torch.zeros(shape))


def test_unknown_and_missing_tensors(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="tensor other has no place"), _sink(tmp_path) as sink:
        sink.write("other", Box((0,), (1,)), torch.zeros(1))
    message = (
        r"2 tensors were not written in full: model.norm.weight \(6,\): 0 of 6 values, lm_head.*12 of 60"
    )
    sink = _sink(tmp_path)
    sink.write("model.embed_tokens.weight", Box.whole((10, 6)), torch.zeros(10, 6))
    sink.write("lm_head.weight", Box((2, 0), (2, 6)), torch.zeros(2, 6))
    with pytest.raises(WeightsError, match=message):
        sink.close()
    assert not names(tmp_path)


def _sink(tmp_path: Path) -> HfSink:
    return HfSink(tmp_path / "out", DictSource(TENSORS).tensors(), config={})


def _cuts(size: int) -> Iterator[tuple[int, int]]:
    return ((start, min(2, size - start)) for start in range(0, size, 2))


@settings(deadline=None, max_examples=25)
@given(
    shape=st.lists(st.integers(1, 5), max_size=4),
    order=st.randoms(use_true_random=False),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int8]),
)
def test_boxes_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, shape: list[int], order: object, dtype: torch.dtype
) -> None:
    """A tensor in boxes of at most 2 along every dimension, shuffled, reads back the same."""
    whole = torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)
    boxes = [Box((), ())]
    for size in shape:
        boxes = [Box((*b.start, s), (*b.shape, n)) for b in boxes for s, n in _cuts(size)]
    order.shuffle(boxes)  # type: ignore[attr-defined]
    folder = tmp_path_factory.mktemp("boxes") / "out"
    infos = {"pad": TensorInfo((3,), torch.int8), "x": TensorInfo(tuple(shape), dtype)}
    with HfSink(folder, infos, config={}) as sink:
        for box in boxes:
            sink.write("x", box, whole[box.slices()])
        sink.write("pad", Box.whole((3,)), torch.zeros(3))
    assert torch.equal(all_tensors(folder)["x"], whole)


def test_no_space_is_told_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kitae.storage.disk.free_bytes", lambda path: 1000)
    with pytest.raises(StorageError, match=rf"{tmp_path}/out.*{(1 << 20) + 492:,} bytes"):
        write(tmp_path / "out")
    assert not names(tmp_path)


def test_disk_that_fills_up_leaves_the_old_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "out")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(StorageError, match=rf"{folder}.*No space left.*bytes"):
        write(folder, max_shard_bytes=10)
    assert_same(all_tensors(folder), TENSORS)
    assert names(tmp_path) == {"out"}


class Counting(DictSource):
    """Counts the bytes of what it has read out and nobody has let go."""

    alive = peak = 0

    def read(self, name: str, box: Box | None = None) -> torch.Tensor:
        tensor = super().read(name, box).clone()
        self._count(tensor.nbytes)
        weakref.finalize(tensor, self._count, -tensor.nbytes)
        return tensor

    def _count(self, size: int) -> None:
        self.alive += size
        self.peak = max(self.peak, self.alive)


@pytest.mark.parametrize("max_shard_bytes", [10, 10**6])
@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_one_tensor_in_memory_at_a_time(
    tmp_path: Path, max_shard_bytes: int, dtype: torch.dtype | None
) -> None:
    """The largest tensor is the bound, whatever a shard holds."""
    source = Counting({f"layer.{i}": torch.zeros(100 + i) for i in range(9)})
    export(source, tmp_path / "out", config={}, dtype=dtype, max_shard_bytes=max_shard_bytes)
    assert source.peak == 108 * 4
    assert source.alive == 0


class Recording(DictSource):
    """Remembers what was read."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__(tensors)
        self.reads: list[str] = []

    def read(self, name: str, box: Box | None = None) -> torch.Tensor:
        self.reads.append(name)
        return super().read(name, box)


def test_tensor_is_written_before_the_next_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Recording(TENSORS)
    events: list[tuple[int, int]] = []
    real = os.pwrite

    def pwrite(descriptor: int, data: memoryview, position: int) -> int:
        events.append((len(source.reads), len(data)))
        return real(descriptor, data, position)

    with HfSink(tmp_path / "out", source.tensors(), config={}) as sink:
        monkeypatch.setattr("os.pwrite", pwrite)
        stream(source, sink)
    assert events == [(1, 240), (2, 12), (3, 240)]
