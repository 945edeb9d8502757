"""Text straight from every format of weights: the same ids, by the command that a person types."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from job_case import kitae
from safetensors.torch import load_file
from tiny_language import write_language_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_model(tmp_path_factory.mktemp("model") / "tiny", initializer_range=0.3)


def ids_of(capsys: pytest.CaptureFixture, weights: Path, *words: object) -> list[int]:
    capsys.readouterr()
    assert kitae("generate", weights, "--prompt", "The quick", "--json", *words) == 0
    return list(json.loads(capsys.readouterr().out)["ids"])


def test_a_bin_file_and_a_state_dict(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    wanted = ids_of(capsys, folder)
    shutil.copytree(folder, tmp_path / "bin")
    tensors = load_file(tmp_path / "bin" / "model.safetensors")
    (tmp_path / "bin" / "model.safetensors").unlink()
    torch.save(tensors, tmp_path / "bin" / "pytorch_model.bin")
    assert ids_of(capsys, tmp_path / "bin") == wanted
    shutil.copy(folder / "model.safetensors", tmp_path / "alone.safetensors")
    words = ("--config", folder, "--tokenizer", folder)
    assert ids_of(capsys, tmp_path / "alone.safetensors", *words) == wanted


@pytest.mark.parametrize("xser", [False, True])
def test_rank_files_of_nxd_with_copies_of_kv_heads(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture, xser: bool
):
    """Four ranks, two KV heads; the config.json is beside them or named."""
    wanted = ids_of(capsys, folder)
    place = tmp_path / "nxd"
    options = ("--to", "nxd", "--tp", "4", "--proof", "none", *(("--xser",) if xser else ()))
    assert kitae("convert", folder, place, *options) == 0
    words = ("--config", folder, "--tokenizer", folder)
    assert ids_of(capsys, place, *words) == wanted
    assert ids_of(capsys, place, *words, "--quantize", "int8")[0] == wanted[0]


def test_a_checkpoint_of_kitae(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    wanted = ids_of(capsys, folder)
    assert kitae("convert", folder, tmp_path / "own", "--to", "kitae", "--proof", "none") == 0
    assert ids_of(capsys, tmp_path / "own", "--tokenizer", folder) == wanted
