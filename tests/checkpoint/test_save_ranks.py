"""Several real processes save together, fail together, and are killed."""

import shutil

import pytest
from native_case import store_at
from rank_saves import (
    die_publishing,
    failing_beside,
    read,
    save,
    save_and_die,
    save_and_lead_to_death,
    save_failing,
    steps_beside,
)
from ranks import RanksFailedError, run_ranks
from topology_case import KINDS, Topology, assert_same_state, filled, full_state, local_state


def check_whole(folder, step):
    """The newest step, by hash, is this one, and holds the state that was saved under its number."""
    checkpoint = store_at(folder).latest()
    assert checkpoint.step == step
    layouts = Topology().layouts(0)
    assert_same_state(filled(layouts, checkpoint.source), local_state(layouts, full_state(seed=step)))


@pytest.mark.parametrize(
    ("saved_by", "read_by"),
    [((2, 2, True), (1, 4, True)), ((4, 1, False), (3, 1, True)), ((1, 1, False), (4, 2, False))],
    ids=["tp2dp2 by tp4", "dp4 by dp3", "one by dp2tp2"],
)
def test_saved_by_some_ranks_and_read_by_others(tmp_path, saved_by, read_by):
    """T40: every rank gets its part of the same tensors; the optimizer's state is fp32."""
    dp, tp, zero = saved_by
    names = run_ranks(dp * tp, save, tmp_path, 7, zero, tp_size=tp)
    assert names == ["step-00000007"] * (dp * tp)
    check_whole(tmp_path, 7)
    dp, tp, zero = read_by
    topology = Topology(tp, dp, zero)
    found = run_ranks(topology.size, read, tmp_path / "step-00000007", zero, tp_size=tp)
    for rank, state in enumerate(found):
        assert_same_state(state, local_state(topology.layouts(rank), full_state(seed=7)))


def test_every_rank_writes_files_of_its_own(tmp_path):
    run_ranks(2, save, tmp_path, 1, True)
    marks = [f"-r{rank:05d}" for rank in (0, 1)]
    names = {f"{kind}{mark}-f32-00001.safetensors" for kind in KINDS for mark in marks}
    assert {path.name for path in (tmp_path / "step-00000001").iterdir()} == {*names, "manifest.json"}
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "index.json", "latest", "step-00000001"}


@pytest.mark.parametrize("rank", [0, 2])
def test_an_error_on_one_rank_is_raised_on_all(tmp_path, rank):
    """Nothing is published of it, neither at once nor beside the training, and the next save works."""
    answers = run_ranks(3, save_failing, tmp_path, rank, OSError(28, "No space left on device"))
    for first, second, third, last in answers:
        assert first is last is None
        for message in (second, third):
            assert message.startswith(f"StorageError: rank {rank}: cannot save to {tmp_path}: No space left")
            assert "needed are " in message
    assert store_at(tmp_path).steps() == [1, 4]
    check_whole(tmp_path, 4)
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_full_disk_under_all_ranks(mount_small, tmp_path):
    """The room for what all ranks write together is looked at before any of them writes."""
    disk = mount_small(tmp_path / "disk", 200)
    run_ranks(2, save, disk, 1, False)
    with pytest.raises(
        RanksFailedError, match=r"StorageError: rank 0: cannot save to .*needed are 2\d\d,\d\d\d"
    ):
        run_ranks(2, save, disk, 2, False)
    assert {path.name for path in disk.iterdir()} == {".lock", "index.json", "latest", "step-00000001"}
    check_whole(disk, 1)


def test_training_goes_on_while_a_rank_writes(tmp_path):
    """What is saved is the state when the save began, on all ranks; there only when all have written."""
    for found, after in run_ranks(2, steps_beside, tmp_path):
        assert found == [None] * 20 + ["step-00000005"]
        assert after is None
    check_whole(tmp_path, 5)


def test_a_save_that_fails_beside_the_training_is_told_to_all_at_one_step(tmp_path):
    answers = run_ranks(3, failing_beside, tmp_path)
    assert len({step for step, _, _ in answers}) == 1
    for _, message, after in answers:
        assert message.startswith("StorageError: rank 2: cannot save to")
        assert after is None
    assert store_at(tmp_path).latest() is None
    assert {path.name for path in tmp_path.iterdir()} == {".lock"}


@pytest.mark.parametrize("beside", [False, True], ids=["at once", "beside"])
@pytest.mark.parametrize("victim", [save_and_die, save_and_lead_to_death, die_publishing])
def test_a_killed_rank_loses_nothing(tmp_path, victim, beside):
    """kill -9 of one rank in a save: the step before is whole, and what is left over goes with the next."""
    folder = tmp_path / "run"
    with pytest.raises(RanksFailedError, match=r"rank \d (died|failed: RuntimeError)"):
        run_ranks(2, victim, folder, beside)
    check_whole(folder, 1)
    left = list(folder.glob(".tmp-*"))
    assert len(left) == 1 or victim is save_and_die  # the leading rank may live to remove it
    shutil.copytree(folder, tmp_path / "copy")
    assert len(store_at(tmp_path / "copy").clean()) == len(left)
    run_ranks(2, save, folder, 3)
    check_whole(folder, 3)
    assert not list(folder.glob(".tmp-*"))


def test_another_folder_on_another_machine_is_said(tmp_path):
    with pytest.raises(
        RanksFailedError, match=r"StorageError: rank 1: .*a file system that all machines share"
    ):
        run_ranks(2, save_apart, tmp_path)


def save_apart(mesh, folder):
    save(mesh, folder / str(mesh.rank), 1)
