from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch
from hf_case import assert_same
from nxd_case import (
    FIXTURE,
    Cut,
    cut_rank,
    everything,
    fixture_config,
    fixture_weights,
    mark,
    rank_name,
    write,
)

from kitae.checkpoint.nxd import NxdSource
from kitae.checkpoint.nxd_folder import Rank, find_nxd, is_nxd
from kitae.errors import WeightsError


def save_tag(run: Path, step: int, *, at: int | None = None) -> Path:
    """A tag of one rank whose weights are full of its step; complete if it has a time."""
    tag = run / f"step_{step}"
    full = {name: torch.full_like(tensor, step) for name, tensor in fixture_weights().items()}
    mark(write(tag, Cut(tp=1, multiplier=1), full), done=at is not None)
    if at is not None:
        os.utime(tag / "done", (at, at))
    return tag


@pytest.mark.parametrize("level", ["", "step_0", "step_0/model"])
def test_any_level_of_the_fixture(level: str) -> None:
    found = find_nxd(FIXTURE / "qkv_kv2_nxd_xser" / level)
    assert found.folder == (FIXTURE / "qkv_kv2_nxd_xser/step_0").resolve()
    assert (found.tp_size, found.pp_size, found.step, found.notes) == (4, 1, 0, ())
    assert is_nxd(FIXTURE / "qkv_kv2_nxd_xser" / level)
    assert_same(
        everything(NxdSource(FIXTURE / "qkv_kv2_nxd_xser" / level, fixture_config())), fixture_weights()
    )


def test_folder_given_from_inside_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FIXTURE / "train_ckpt_tp1/step_2/model")
    assert find_nxd(Path()).step == 2


def test_optimizer_files_are_found_but_for_a_model_alone() -> None:
    tag = FIXTURE / "train_ckpt_tp1/step_2"
    assert list(find_nxd(tag).optimizer) == [Rank(0, 0, 0)]
    assert not find_nxd(tag / "model").optimizer
    assert not find_nxd(FIXTURE / "train_ckpt_tp4_xser").optimizer


def test_an_optimizer_that_is_not_whole_does_not_stop_the_weights(tmp_path: Path) -> None:
    write(tmp_path, Cut(), fixture_weights())
    (tmp_path / "optim").mkdir()
    assert find_nxd(tmp_path).notes == ("optim/ holds no rank files, so there is no optimizer state",)
    (tmp_path / "optim" / rank_name(2)).symlink_to("nowhere")
    (tmp_path / "optim" / "dp_rank_00_ep_rank_01_tp_rank_00_pp_rank_00.pt").touch()
    assert find_nxd(tmp_path).optimizer.keys() == {Rank(0, 2)}
    assert_same(everything(NxdSource(tmp_path, fixture_config())), fixture_weights())


def test_zero1_files_of_the_old_interface_lie_beside_the_model(tmp_path: Path) -> None:
    shutil.move(write(tmp_path / "x", Cut(), fixture_weights(), form="folder") / "model", tmp_path / "old")
    for name in ("optim.dp_rank_00.tp_rank_03", "optim.dp_rank_01.tp_rank_03", "optim.other"):
        (tmp_path / "old" / name).touch()
    assert find_nxd(tmp_path / "old").optimizer.keys() == {Rank(0, 3, 0), Rank(0, 3, 1)}


@pytest.mark.parametrize(
    "form", ["", "dp_rank_00_", "dp_rank_00_ep_rank_00_", "folder"], ids=lambda form: form or "no prefix"
)
def test_all_names_of_rank_files(tmp_path: Path, form: str) -> None:
    write(tmp_path, Cut(), fixture_weights(), form=form)
    assert is_nxd(tmp_path)
    for folder in (tmp_path, tmp_path / "model"):
        assert_same(everything(NxdSource(folder, fixture_config())), fixture_weights())


def test_rank_folders_of_the_old_interface_without_model(tmp_path: Path) -> None:
    shutil.move(write(tmp_path / "x", Cut(), fixture_weights(), form="folder") / "model", tmp_path / "old")
    assert find_nxd(tmp_path / "old").folder == tmp_path / "old"
    assert_same(everything(NxdSource(tmp_path / "old", fixture_config())), fixture_weights())


def test_old_names_with_xser(tmp_path: Path) -> None:
    """`tp_rank_TT_pp_rank_PP` as a file, its tensors beside it."""
    for path in (FIXTURE / "qkv_kv2_nxd_xser/step_0/model").glob("*_pp_rank_00.pt"):
        new = tmp_path / path.stem.removeprefix("dp_rank_00_")
        shutil.copy(path, new)
        shutil.copytree(path.with_name(f"{path.name}.tensors"), tmp_path / f"{new.name}.tensors")
    assert_same(everything(NxdSource(tmp_path, fixture_config())), fixture_weights())


def test_the_newest_is_the_one_done_last(tmp_path: Path) -> None:
    """Neither the last name nor the largest number; unfinished ones are passed over and said."""
    save_tag(tmp_path, 9000, at=500)
    save_tag(tmp_path, 10000, at=600)
    save_tag(tmp_path, 700, at=700)
    save_tag(tmp_path, 11000)
    found = find_nxd(tmp_path)
    assert found.step == 700
    assert found.notes == (
        "passed over step_11000: the save was not finished",
        "took step_700, whose file `done` is the newest of 3",
    )
    assert NxdSource(tmp_path, fixture_config()).read("model.norm.weight")[0] == 700
    assert find_nxd(tmp_path / "step_9000").step == 9000


def test_save_that_was_not_finished(tmp_path: Path) -> None:
    tag = save_tag(tmp_path, 1)
    for folder in (tag, tag / "model"):
        with pytest.raises(WeightsError, match=r"step_1: the save was not finished .*asynchronous"):
            find_nxd(folder)
    with pytest.raises(WeightsError, match="no save was finished; step_1 lack"):
        find_nxd(tmp_path)


def test_what_the_converter_wrote_has_no_marks(tmp_path: Path) -> None:
    write(tmp_path / "pretrained_weight", Cut(), fixture_weights())
    assert find_nxd(tmp_path).folder.name == "pretrained_weight"
    save_tag(tmp_path, 5, at=100)
    found = find_nxd(tmp_path)
    assert (found.step, found.notes) == (5, ("passed over pretrained_weight: not marked as done",))
    (tmp_path / "step_5/done").unlink()
    (tmp_path / "step_5/checkpoint").unlink()
    with pytest.raises(WeightsError, match=r"several checkpoints .*pretrained_weight, step_5.*give one"):
        find_nxd(tmp_path)


def test_missing_rank_files_are_named(tmp_path: Path) -> None:
    write(tmp_path, Cut(pp=2), fixture_weights())
    (tmp_path / "model" / rank_name(1, 0)).unlink()
    (tmp_path / "model" / rank_name(2, 1)).unlink()
    with pytest.raises(
        WeightsError, match=r"2 rank files beside the 6 found are missing: .*\(tp 1\), \(tp 2 pp 1\)"
    ):
        find_nxd(tmp_path)


def test_rank_numbers_beyond_reason_take_no_memory(tmp_path: Path) -> None:
    write(tmp_path, Cut(tp=1, multiplier=1), fixture_weights())
    (tmp_path / "model" / rank_name(999_999_999, 999_999_999)).touch()
    with pytest.raises(WeightsError, match=r"those of .* and others"):
        find_nxd(tmp_path)


def test_other_data_parallel_ranks_are_said_and_not_read(tmp_path: Path) -> None:
    write(tmp_path, Cut(), fixture_weights())
    for tp in range(4):
        torch.save(cut_rank(Cut(), fixture_weights(), tp), tmp_path / "model" / rank_name(tp, dp=1))
    source = NxdSource(tmp_path, fixture_config())
    assert "4 more data-parallel ranks in model/ are not read" in source.notes[1]
    for tp in range(4):
        (tmp_path / "model" / rank_name(tp)).unlink()
    with pytest.raises(WeightsError, match="lacks the files of data-parallel rank 0"):
        find_nxd(tmp_path)


def test_expert_parallel_files(tmp_path: Path) -> None:
    write(tmp_path, Cut(), fixture_weights(), form="dp_rank_00_ep_rank_01_")
    with pytest.raises(WeightsError, match="expert parallelism"):
        find_nxd(tmp_path)


def test_folders_that_are_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="is not a folder"):
        find_nxd(tmp_path / "nowhere")
    (tmp_path / "model").mkdir()
    assert not is_nxd(tmp_path)
    assert not is_nxd(FIXTURE / "hf")
    for folder in (tmp_path, FIXTURE / "hf"):
        with pytest.raises(WeightsError, match="holds no NxD checkpoint"):
            find_nxd(folder)
