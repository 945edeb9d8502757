"""Saving, keeping and finding the checkpoints of a run."""

import json
import os
import shutil

import pytest
import torch
from native_case import DictSource, bits, edit_manifest, names, save, store_at, write_checkpoint

from kitae.checkpoint.resume import find_checkpoint
from kitae.errors import RecipeError, WeightsError


def damage(folder):
    path = folder / "weights-f32-00001.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")


def test_save_and_load_are_the_same_bits(tmp_path):
    special = torch.tensor([0x7FC00001, 0x7F800001, -0x80000000, 1], dtype=torch.int32).view(torch.float32)
    kinds = {
        "weights": DictSource({"w": special, "b": special.to(torch.bfloat16), "t": torch.randn(3, 4).t()}),
        "exp_avg": DictSource({"w": torch.randn(4)}),
        "counts": DictSource({"n": torch.tensor([2**63 - 1, -1])}),
    }
    state = {"step": 5, "consumed_samples": 160, "tokens": 81920, "best": 3.25}
    store = store_at(tmp_path / "run" / "checkpoints")
    path = store.save(
        5, kinds, state=state, config={"model_type": "llama"}, recipe_hash="abc", heldout_loss=3.5
    )
    checkpoint = store.latest()
    assert (checkpoint.path, checkpoint.step, checkpoint.state) == (path, 5, state)
    assert (checkpoint.manifest.recipe_hash, checkpoint.manifest.heldout_loss) == ("abc", 3.5)
    for kind, source in kinds.items():
        for name, tensor in source.held.items():
            assert torch.equal(bits(checkpoint.source(kind).read(name)), bits(tensor)), (kind, name)


def test_an_empty_or_absent_store(tmp_path):
    store = store_at(tmp_path / "nothing")
    assert (store.latest(), store.steps(), store.clean(), store.said) == (None, [], [], [])
    assert not store.folder.exists()


def test_rotation_goes_by_the_order_of_saving(tmp_path):
    """T42: 9000..10000 by 100 with limit 10 keeps 9100..10000, whatever names and times say."""
    stranger = tmp_path / "step-00000700"
    save(store_at(tmp_path / "old"), 700)
    (tmp_path / "old" / stranger.name).rename(stranger)
    store = store_at(tmp_path, keep=10)
    for step in range(9000, 10001, 100):
        path = save(store, step)
        os.utime(path, (1e9 - step, 1e9 - step))
        assert path.is_dir()
    assert store.steps() == list(range(9100, 10001, 100))
    assert names(tmp_path) == [700, *range(9100, 10001, 100)]
    assert store.latest().step == 10000
    assert (tmp_path / "latest").read_text() == "step-00010000\n"


@pytest.mark.parametrize("name", ["step-00000700", "step-00009000", "step-9000-copy", "notes"])
def test_foreign_folders_are_never_touched(tmp_path, name):
    """T42: what this run did not save stays, even under the name of a step that it saves itself."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "precious").write_text("mine")
    store = store_at(tmp_path, keep=1)
    for step in (9000, 9100, 9200):
        save(store, step)
    assert store.steps() == [9200]
    assert [path.read_text() for path in tmp_path.rglob("precious")] == ["mine"]


def test_the_best_is_kept_besides_the_newest(tmp_path):
    store = store_at(tmp_path, keep=2, keep_best=True)
    for step, loss in [(1, 3.0), (2, 2.5), (3, 2.5), (4, float("nan")), (5, None), (6, 2.9), (7, 2.8)]:
        save(store, step, heldout_loss=loss)
    assert store.steps() == names(tmp_path) == [3, 6, 7]
    save(store, 8, heldout_loss=2.0)
    assert store.steps() == names(tmp_path) == [7, 8]


def test_without_keep_best_only_the_newest_are_kept(tmp_path):
    store = store_at(tmp_path, keep=1)
    for step, loss in [(1, 1.0), (2, 9.0)]:
        save(store, step, heldout_loss=loss)
    assert names(tmp_path) == [2]


def test_keep_of_none_is_refused(tmp_path):
    with pytest.raises(RecipeError, match=r"checkpoint.keep must be at least 1, not 0"):
        store_at(tmp_path, keep=0)


def test_truncated_newest_is_passed_over(tmp_path):
    """T41: falls back to the newest complete one and says what it passed over and why."""
    store = store_at(tmp_path, keep=4)
    for step in (1, 2, 3, 4):
        save(store, step)
    (tmp_path / "step-00000004" / "manifest.json").unlink()
    with (tmp_path / "step-00000003" / "exp_avg-f32-00001.safetensors").open("r+b") as file:
        file.truncate(20)
    damage(tmp_path / "step-00000002")
    assert store.latest().step == 1
    assert [line.split(":")[0] for line in store.said] == [
        "passed over checkpoint step-00000004",
        "passed over checkpoint step-00000003",
        "passed over checkpoint step-00000002",
    ]
    assert "no manifest.json" in store.said[0]
    assert "exp_avg-f32-00001.safetensors is truncated" in store.said[1]
    assert "sha256" in store.said[2]
    assert store.latest(verify=False).step == 2


def test_a_folder_removed_by_hand_is_passed_over(tmp_path):
    store = store_at(tmp_path)
    for step in (1, 2):
        save(store, step)
    shutil.rmtree(tmp_path / "step-00000002")
    assert store.latest().step == 1
    assert "step-00000002" in store.said[0]


def test_all_broken_is_an_error_not_a_new_beginning(tmp_path):
    store = store_at(tmp_path)
    for step in (1, 2):
        damage(save(store, step))
    with pytest.raises(
        WeightsError, match=r"none of the 2 checkpoints in .* is usable; the newest: .*step-00000002"
    ):
        store.latest()


def test_a_step_saved_again_is_replaced(tmp_path):
    store = store_at(tmp_path)
    for step in (10, 20, 30):
        save(store, step)
    damage(tmp_path / "step-00000030")
    assert store.latest().step == 20
    save(store, 30, value=7)
    assert store.steps() == names(tmp_path) == [10, 20, 30]
    assert store.latest().source().read("w").unique().tolist() == [7.0]
    assert not list(tmp_path.glob(".*-*"))


def test_later_steps_of_an_abandoned_time_line_go(tmp_path):
    """Resumed from 10 after 20 and 30 broke: the save of 15 makes them stale; they are not fallen back to."""
    store = store_at(tmp_path, keep=4)
    for step in (10, 20, 30):
        save(store, step)
    path = save(store, 15)
    assert store.steps() == names(tmp_path) == [10, 15]
    damage(path)
    assert store.latest().step == 10


def test_a_lost_index_is_made_again(tmp_path):
    store = store_at(tmp_path, keep=2, keep_best=True)
    for step, loss in [(9000, 1.0), (9900, 2.0), (10000, 3.0)]:
        save(store, step, heldout_loss=loss)
    before = (tmp_path / "index.json").read_text()
    for content in (None, "{", '{"saves": 1, "run": "x"}', "[]"):
        (tmp_path / "index.json").unlink(missing_ok=True)
        if content is not None:
            (tmp_path / "index.json").write_text(content)
        store.said.clear()
        assert store.latest().step == 10000
        assert store.said[-1].endswith("made again from the manifests of 3 checkpoints")
        assert any("is damaged" in line for line in store.said) == (content is not None)
    save(store, 10100)
    assert store.steps() == names(tmp_path) == [9000, 10000, 10100]
    assert json.loads((tmp_path / "index.json").read_text())["run"] == json.loads(before)["run"]


def test_without_index_and_pointer_checkpoints_are_read_but_not_owned(tmp_path):
    store = store_at(tmp_path, keep=1)
    save(store, 9900)
    (tmp_path / "index.json").unlink()
    (tmp_path / "latest").unlink()
    assert store.latest().step == 9900
    assert "no usable index.json" in store.said[0]
    save(store, 10000)
    save(store, 10100)
    assert names(tmp_path) == [9900, 10100]


def test_a_published_step_that_missed_the_index_is_found(tmp_path):
    """Killed between the rename and the index: the step is complete, and counts."""
    store = store_at(tmp_path, keep=2)
    save(store, 1)
    index = (tmp_path / "index.json").read_text()
    save(store, 2)
    (tmp_path / "index.json").write_text(index)
    assert store.latest().step == 2
    save(store, 3)
    assert store.steps() == names(tmp_path) == [2, 3]


def test_a_source_that_fails_leaves_nothing(tmp_path):
    class Failing(DictSource):
        def read(self, name, box=None):
            raise WeightsError("cannot be read")

    store = store_at(tmp_path)
    save(store, 1)
    with pytest.raises(WeightsError, match="cannot be read"):
        store.save(2, {"weights": Failing({"w": torch.zeros(4)})}, state={}, config={}, recipe_hash="r")
    with pytest.raises(WeightsError, match="not plain JSON"):
        store.save(2, {}, state={"x": object()}, config={}, recipe_hash="r")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".lock",
        "index.json",
        "latest",
        "step-00000001",
    ]


def test_open_a_step(tmp_path):
    store = store_at(tmp_path)
    save(store, 3)
    assert store.open(3).step == 3
    with pytest.raises(WeightsError, match="step-00000004 is not a complete checkpoint"):
        store.open(4)


def test_find_checkpoint_takes_run_store_or_step(tmp_path):
    store = store_at(tmp_path / "run" / "checkpoints")
    for step in (1, 2):
        save(store, step)
    for path in (tmp_path / "run", store.folder, store.folder / "step-00000002"):
        assert find_checkpoint(path).step == 2
    assert find_checkpoint(store.folder / "step-00000001").step == 1


def test_find_checkpoint_says_what_is_wrong(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(
            WeightsError, match=rf"{path} holds no checkpoint of kitae; give the folder of a run"
        ):
            find_checkpoint(path)
    (tmp_path / "step-00000001").mkdir()
    with pytest.raises(WeightsError, match="step-00000001 is not a complete checkpoint"):
        find_checkpoint(tmp_path / "step-00000001")
    write_checkpoint(tmp_path / "other", {"w": torch.zeros(1)})
    edit_manifest(tmp_path / "other", lambda body: body.update(version=9))
    with pytest.raises(WeightsError, match="newer kitae"):
        find_checkpoint(tmp_path / "other")
