from __future__ import annotations

import os
import shutil

import pytest
from convert_case import HF
from gguf_case import write_gguf
from hf_case import as_bin, hf_folder
from native_case import save, store_at
from nxd_case import FIXTURE

from kitae.checkpoint.detect import detect
from kitae.errors import WeightsError


@pytest.fixture
def folder(tmp_path):
    return hf_folder(tmp_path / "model")


def test_hugging_face_folders(folder):
    assert detect(folder).kind == "hf"
    assert detect(as_bin(folder)).kind == "bin"


def test_shards_without_an_index_are_hugging_face_too(folder):
    """Their reader says what is missing."""
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    assert detect(folder).kind == "hf"


def test_a_file_of_a_folder_means_the_folder(folder):
    for name in ("model.safetensors", "config.json"):
        found = detect(folder / name)
        assert (found.kind, found.path) == ("hf", folder)
        assert name in found.notes[0]


def test_gguf_is_known_by_its_first_bytes(tmp_path, folder):
    file = write_gguf(tmp_path / "model.gguf", folder)
    assert detect(file).kind == "gguf"
    assert detect(file.rename(tmp_path / "blob")).kind == "gguf"


def test_a_folder_of_one_gguf_means_the_file(tmp_path, folder):
    (tmp_path / "one").mkdir()
    file = write_gguf(tmp_path / "one/a.gguf", folder)
    assert detect(tmp_path / "one").path == file
    shutil.copy(file, tmp_path / "one/b.gguf")
    with pytest.raises(WeightsError, match=r"a\.gguf, b\.gguf; give one"):
        detect(tmp_path / "one")


def test_several_formats_in_one_folder_are_told(tmp_path, folder):
    write_gguf(folder / "model.gguf", folder)
    found = detect(folder)
    assert found.kind == "hf"
    assert found.notes == (f"{folder} also holds GGUF, which is left alone",)


def test_kitae_runs_stores_and_steps(tmp_path):
    step = save(store_at(tmp_path / "run/checkpoints"), 3)
    for path in (tmp_path / "run", tmp_path / "run/checkpoints", step, step / "manifest.json"):
        assert detect(path).kind == "kitae", path


def test_a_damaged_step_is_still_one_of_kitae(tmp_path):
    """Its reader says what is wrong; it must not pass for something else."""
    step = save(store_at(tmp_path), 3)
    (step / "manifest.json").unlink()
    assert detect(step).kind == "kitae"


@pytest.mark.parametrize(
    "name",
    [
        "qkv_kv2",
        "qkv_kv2/model",
        "qkv_kv2_nxd_xser",
        "qkv_kv2_nxd_xser/step_0",
        "train_ckpt_tp1",
        "noqkv_tp2",
    ],
)
def test_nxd_at_any_level(name):
    assert detect(FIXTURE / name).kind == "nxd"


def test_one_file_of_a_rank_is_refused():
    with pytest.raises(WeightsError, match=r"one rank's file .* give the folder"):
        detect(next((FIXTURE / "qkv_kv2/model").glob("*.pt")))


def test_a_lone_state_dict():
    assert detect(HF / "full_state.pt").kind == "state"


def test_what_is_not_there_gets_a_suggestion(folder):
    with pytest.raises(WeightsError, match=r"does not exist; did you mean .*/model\?"):
        detect(folder.parent / "modle")
    with pytest.raises(WeightsError, match=r"does not exist$"):
        detect(folder.parent / "nothing/like/it")


def test_a_folder_above_names_what_is_below(folder):
    with pytest.raises(WeightsError, match=rf"no weights that kitae knows; did you mean {folder}\?"):
        detect(folder.parent)


def test_other_files_and_empty_folders(tmp_path):
    (tmp_path / "notes.txt").write_text("weights")
    with pytest.raises(WeightsError, match="no file of weights that kitae knows; it reads Hugging Face"):
        detect(tmp_path / "notes.txt")
    with pytest.raises(WeightsError, match="no weights that kitae knows; it reads Hugging Face"):
        detect(tmp_path)


def test_a_link_to_nowhere(tmp_path):
    (tmp_path / "model").symlink_to("nothing")
    with pytest.raises(WeightsError, match=r"model is a link to nothing, which does not exist$"):
        detect(tmp_path / "model")


def test_what_is_neither_a_file_nor_a_folder(tmp_path):
    """Opening a pipe would wait for ever."""
    os.mkfifo(tmp_path / "pytorch_model.bin")
    with pytest.raises(WeightsError, match="is neither a file nor a folder"):
        detect(tmp_path / "pytorch_model.bin")
