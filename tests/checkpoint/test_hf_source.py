from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from hf_case import all_tensors, as_bin, assert_same, edit_json, hf_folder, rewrite

from kitae.checkpoint.hf import HfSource
from kitae.errors import WeightsError
from kitae.parallel.layout import Box

HEAD = "lm_head.weight"
INDEX = "model.safetensors.index.json"


def values(source: HfSource) -> dict[str, torch.Tensor]:
    return {name: source.read(name) for name in source.tensors()}


def change_index(folder: Path, **moved: str | None) -> None:
    weight_map = json.loads((folder / INDEX).read_text())["weight_map"]
    weight_map.update({name: file for name, file in moved.items() if file is not None})
    edit_json(
        folder / INDEX, weight_map={n: f for n, f in weight_map.items() if moved.get(n, "") is not None}
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return hf_folder(tmp_path / "model")


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return hf_folder(tmp_path / "model", max_shard_size="20KB")


def test_single_file(folder: Path) -> None:
    assert_same(values(HfSource(folder)), all_tensors(folder))


def test_shards(sharded: Path) -> None:
    assert len(list(sharded.glob("*.safetensors"))) > 2
    assert_same(values(HfSource(sharded)), all_tensors(sharded))


@pytest.mark.parametrize("shards", [1, 3])
def test_bin_files(folder: Path, shards: int) -> None:
    expected = all_tensors(folder)
    assert_same(values(HfSource(as_bin(folder, shards=shards))), expected)


def test_bin_file_from_before_zip_archives(folder: Path) -> None:
    expected = all_tensors(folder)
    (folder / "model.safetensors").unlink()
    torch.save(expected, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert_same(values(HfSource(folder)), expected)


def test_safetensors_are_preferred_to_bin(folder: Path) -> None:
    torch.save({"other": torch.zeros(1)}, folder / "pytorch_model.bin")
    assert "other" not in HfSource(folder).tensors()


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_any_box(folder: Path, kind: str) -> None:
    name = "model.layers.0.mlp.down_proj.weight"
    whole = all_tensors(folder)[name]
    source = HfSource(folder if kind == "safetensors" else as_bin(folder))
    for box in (Box((0, 0), (32, 48)), Box((3, 5), (7, 11)), Box((31, 0), (1, 48)), Box((0, 0), (0, 48))):
        assert torch.equal(source.read(name, box), whole[box.slices()])


def test_index_that_names_a_tensor_its_file_lacks(sharded: Path) -> None:
    """T13."""
    name = "model.layers.1.self_attn.k_proj.weight"
    first = min(p.name for p in sharded.glob("*.safetensors"))
    change_index(sharded, **{name: first, "x": first})
    with pytest.raises(WeightsError, match=rf"not in their file: .*{name} in {first}"):
        HfSource(sharded)


def test_tied_index_that_names_a_head_nobody_has(tmp_path: Path) -> None:
    """T01: harmless when config.json says tied, and said."""
    folder = hf_folder(tmp_path / "model", max_shard_size="20KB", tie_word_embeddings=True)
    change_index(folder, **{HEAD: sorted(p.name for p in folder.glob("*.safetensors"))[1]})
    source = HfSource(folder)
    assert HEAD not in source.tensors()
    assert "tied" in source.notes[0]
    edit_json(folder / "config.json", tie_word_embeddings=False)
    with pytest.raises(WeightsError, match=r"not in their file: lm_head.weight"):
        HfSource(folder)


def test_tensor_that_the_index_does_not_name(sharded: Path) -> None:
    change_index(sharded, **{"model.norm.weight": None})
    with pytest.raises(WeightsError, match=r"does not name .model.norm.weight in model-"):
        HfSource(sharded)


def test_missing_shards_are_listed(sharded: Path) -> None:
    files = sorted(sharded.glob("*.safetensors"))
    files[0].unlink()
    files[2].unlink()
    with pytest.raises(
        WeightsError, match=rf"2 of {len(files)} .* missing: {files[0].name}, {files[2].name}"
    ):
        HfSource(sharded)


def test_shards_without_their_index(sharded: Path) -> None:
    (sharded / INDEX).unlink()
    with pytest.raises(WeightsError, match="without their index"):
        HfSource(sharded)


def test_index_with_a_name_that_no_file_can_have(sharded: Path) -> None:
    index = json.loads((sharded / INDEX).read_text())
    for name in ("x" * 300, "a\0b", ""):
        weight_map = {**index["weight_map"], "model.norm.weight": name}
        (sharded / INDEX).write_text(json.dumps({**index, "weight_map": weight_map}))
        with pytest.raises(WeightsError, match=r"1 of \d+ weight files are missing"):
            HfSource(sharded)


def test_index_that_leads_out_of_the_folder(sharded: Path) -> None:
    change_index(sharded, **{"model.norm.weight": "../other/model.safetensors"})
    with pytest.raises(WeightsError, match="outside its folder"):
        HfSource(sharded)


def test_two_exports_in_one_folder(sharded: Path) -> None:
    rewrite(sharded, {"a": torch.zeros(1)})
    with pytest.raises(WeightsError, match=r"holds both model.safetensors and"):
        HfSource(sharded)
    (sharded / INDEX).unlink()
    with pytest.raises(WeightsError, match=r"holds both model.safetensors and model-00001-of-"):
        HfSource(sharded)


@pytest.mark.parametrize("keep", [3, 40, -1])
def test_truncated_file(folder: Path, keep: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(WeightsError, match="truncated download"):
        HfSource(folder)


def test_longer_file(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes() + b"xy")
    with pytest.raises(WeightsError, match="2 bytes more"):
        HfSource(folder)


def header(text: str) -> bytes:
    """A file of four bytes of values."""
    return len(text).to_bytes(8, "little") + text.encode() + b"1234"


BAD_HEADERS = [
    '{"a":{}   }',
    '{"a":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}}',
    '{"a":{"dtype":"F32","shape":null,"data_offsets":[0,4]}}',
    '{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}',
    '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}}',
    '{"a":{"dtype":"F32","shape":[1],"data_offsets":{"0":4}}}',
    '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,"4"]}}',
    "[" * 100_000 + "]" * 100_000,
]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>Not found</html>", "not a safetensors file"),
        (b"\x04\0\0\0\0\0\0\0[{}]", "header is broken"),
        (b"<html>", "is cut off"),
        *((header(one), "header is broken") for one in BAD_HEADERS),
    ],
)
def test_file_of_another_kind(folder: Path, content: bytes, message: str) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(WeightsError, match=message):
        HfSource(folder)


def test_empty_metadata(folder: Path) -> None:
    """T14."""
    header = b'{"__metadata__":{},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    content = len(header).to_bytes(8, "little") + header + torch.tensor([1.0, 2.0]).numpy().tobytes()
    (folder / "model.safetensors").write_bytes(content)
    assert HfSource(folder).read("a").tolist() == [1.0, 2.0]


def test_truncated_bin(folder: Path) -> None:
    file = as_bin(folder) / "pytorch_model.bin"
    content = file.read_bytes()
    for length in (0, 1, 300, len(content) // 2, len(content) - 200, len(content) - 1):
        file.write_bytes(content[:length])
        with pytest.raises(WeightsError, match=r"bin is (cut off|no file of torch)"):
            HfSource(folder)


class Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (Path("trapped"),))


@pytest.mark.parametrize("how", ["zip", "pickle"])
def test_bin_that_wants_to_run_code(folder: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "model.safetensors").unlink()
    if how == "zip":
        torch.save({"a": Trap()}, folder / "pytorch_model.bin")
    else:
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"a": Trap()}))
    with pytest.raises(WeightsError, match="runs no code from"):
        HfSource(folder)
    assert not (folder / "trapped").exists()


def test_bin_with_more_than_tensors(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"state_dict": {"a": torch.zeros(1)}, "epoch": 3}, folder / "pytorch_model.bin")
    with pytest.raises(WeightsError, match="state_dict is a dict, not a tensor"):
        HfSource(folder)


@pytest.mark.parametrize("zipped", [True, False])
def test_bin_of_a_lone_tensor(folder: Path, zipped: bool) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(torch.zeros(3), folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    with pytest.raises(WeightsError, match=r"holds a \w*Tensor; kitae reads plain dicts of tensors"):
        HfSource(folder)


def test_buffers_of_old_checkpoints_are_passed_over(folder: Path) -> None:
    buffers = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4)}
    expected = all_tensors(folder)
    rewrite(folder, {**expected, **buffers})
    assert_same(values(HfSource(folder)), expected)


def test_folder_without_weights(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"neither model.safetensors nor pytorch_model.bin"):
        HfSource(tmp_path)
    with pytest.raises(WeightsError, match="is not a folder"):
        HfSource(tmp_path / "nowhere")
