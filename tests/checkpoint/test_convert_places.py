"""Where a conversion is made, and what others do there meanwhile."""

from __future__ import annotations

import os
import shutil

import pytest
import torch
from convert_case import HF, converted, left_in, quick
from hf_case import hf_folder

from kitae.checkpoint import convert as convert_module
from kitae.checkpoint.convert import convert
from kitae.checkpoint.convert_options import Options
from kitae.checkpoint.wrapped import Counting
from kitae.errors import StorageError, WeightsError


@pytest.fixture
def folder(tmp_path):
    return hf_folder(tmp_path / "model", "llama3")


def test_what_is_not_a_result_is_left_alone(tmp_path, folder):
    """T16: never a mix of two exports."""
    shutil.copytree(folder, tmp_path / "old")
    with pytest.raises(WeightsError, match="exists and is no result of kitae convert"):
        converted(folder, tmp_path / "old", to="hf")
    (tmp_path / "file").write_text("x")
    with pytest.raises(WeightsError, match="is a file; name another folder"):
        converted(folder, tmp_path / "file", to="hf")
    (tmp_path / "empty").mkdir()
    assert (quick(folder, tmp_path / "empty", to="hf") / "config.json").is_file()


def test_a_link_means_what_it_leads_to(tmp_path, folder):
    """The hidden folder is made where there is room, and the link stays."""
    (tmp_path / "disk/real").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk/real")
    quick(folder, tmp_path / "link", to="hf")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "disk/real/config.json").is_file()
    (tmp_path / "new").symlink_to("disk/new")
    quick(folder, tmp_path / "new", to="hf")
    assert left_in(tmp_path / "disk") == ["new", "real"]


def test_places_where_no_folder_can_be(tmp_path, folder, monkeypatch):
    with pytest.raises(StorageError, match="File name too long"):
        converted(folder, tmp_path / ("x" * 256), to="hf")
    (tmp_path / "disk").mkdir()
    monkeypatch.setattr(type(tmp_path), "is_mount", lambda path: path.name == "disk")
    with pytest.raises(WeightsError, match="disk is a mounted disk, which stays; name a folder inside it"):
        converted(folder, tmp_path / "disk", to="hf")


def test_onto_itself(folder):
    with pytest.raises(WeightsError, match="left alone"):
        converted(folder, folder, to="hf")


def test_no_room(tmp_path, folder, monkeypatch):
    """Also a dry run says no."""
    monkeypatch.setattr("kitae.storage.disk.free_bytes", lambda path: 1000)
    for dry_run in (True, False):
        with pytest.raises(
            StorageError, match=f"cannot save to {tmp_path / 'out'}: No space.*free are 1,000"
        ):
            converted(folder, tmp_path / "out", to="hf", dry_run=dry_run)
    assert left_in(tmp_path) == ["model"]


def test_a_failing_disk_is_told_of_the_target(tmp_path, folder, monkeypatch):
    def fail(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kitae.checkpoint.safetensors_writer.SafetensorsWriter.write", fail)
    with pytest.raises(StorageError) as error:
        converted(folder, tmp_path / "out", to="hf")
    assert str(error.value).startswith(f"cannot save to {tmp_path / 'out'}: No space left on device")
    assert ".tmp-" not in str(error.value)
    assert left_in(tmp_path) == ["model"]


def test_somebody_else_made_the_target_meanwhile(tmp_path, folder, monkeypatch):
    def meanwhile(*given, **named):
        (tmp_path / "out").mkdir()
        (tmp_path / "out/theirs").write_text("x")
        return {}

    monkeypatch.setattr(convert_module, "prove", meanwhile)
    with pytest.raises(WeightsError, match="is no result of kitae convert, so it is left alone"):
        converted(folder, tmp_path / "out", to="hf")
    assert left_in(tmp_path) == ["model", "out"]
    assert left_in(tmp_path / "out") == ["theirs"]


def test_the_same_conversion_made_the_target_meanwhile(tmp_path, folder, monkeypatch):
    """Then there is nothing to complain about: it is proven as far as was asked for here."""
    prove = convert_module.prove

    def meanwhile(*given, **named):
        monkeypatch.setattr(convert_module, "prove", prove)
        quick(folder, tmp_path / "out", to="hf")
        return prove(*given, **named)

    monkeypatch.setattr(convert_module, "prove", meanwhile)
    record, said = converted(folder, tmp_path / "out", to="hf")
    assert f"{tmp_path / 'out'} is already the complete result of this conversion: skipped" in said
    assert record.proof["level"] == "logits"
    assert left_in(tmp_path) == ["model", "out"]


def test_a_reader_that_goes_away_is_no_failing_disk(tmp_path, folder):
    """As when piped to head: what is written so far stays."""

    def gone(line):
        if line.startswith("proof:"):
            raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(BrokenPipeError):
        convert(folder, tmp_path / "out", Options(to="hf"), gone)
    assert len(left_in(tmp_path)) == 2
    _, said = converted(folder, tmp_path / "out", to="hf", proof="values")
    assert "going on: 21 of 21 tensors are there" in said


@pytest.mark.parametrize("proof", ["none", "values"])
@pytest.mark.parametrize("change", ["replaced", "removed", "cut"])
def test_a_source_that_changes_meanwhile(tmp_path, monkeypatch, proof, change):
    """The result would be of two checkpoints; the disk is not to blame."""
    nxd = quick(HF, tmp_path / "nxd", to="nxd", tp=2, xser=change == "replaced")
    file = next((nxd / "model").rglob("tensor_9.pt" if change == "replaced" else "*tp_rank_01*.pt"))
    usual, calls = Counting.read, iter(range(15))

    def change_it(self, *given):
        if next(calls, None) == 12:
            if change == "replaced":
                torch.save(torch.load(file) + 1, file)
                os.utime(file, (1, 2**32))
            elif change == "removed":
                file.unlink()
            else:
                os.truncate(file, 1000)
        return usual(self, *given)

    monkeypatch.setattr(Counting, "read", change_it)
    with pytest.raises(
        WeightsError, match=r"nxd was changed by somebody else while it was converted \(files: "
    ):
        converted(nxd, tmp_path / "out", proof=proof)
    assert left_in(tmp_path) == ["nxd"]


def test_tensors_beside_the_ranks_files_are_of_the_source(tmp_path):
    nxd = quick(HF, tmp_path / "nxd", to="nxd", tp=2, xser=True)
    quick(nxd, tmp_path / "out")
    os.utime(next((nxd / "model").rglob("tensor_3.pt")), (1, 2**32))
    with pytest.raises(WeightsError, match=r"source files: .*tp_rank_0\d_pp_rank_00\.pt\.tensors changed"):
        converted(nxd, tmp_path / "out")
