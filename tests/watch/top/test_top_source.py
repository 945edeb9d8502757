"""What a run's folder gives to the screen, however it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from recorded_runs import BEGUN_S, attempt, write_log, write_run
from top_scenes import (
    append,
    evaluation,
    sample,
    start,
    update,
    write_checkpoint,
    write_samples,
    write_training,
)

from kitae.errors import ClusterError
from kitae.launch.slurm.commands import Slurm
from kitae.watch.top import source as top_source
from kitae.watch.top.header import header
from kitae.watch.top.look import View
from kitae.watch.top.source import PatientSlurm, RunSource, cleaned, natural

NOW = BEGUN_S + 605


@pytest.fixture(autouse=True)
def _no_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))


def source(run: Path) -> RunSource:
    return RunSource(run, now=lambda: NOW)


def test_everything_of_a_run_is_there(tmp_path: Path):
    scene = source(write_training(tmp_path / "run")).look()
    assert scene.status is not None
    assert (scene.title, scene.status.state, scene.status.progress.step) == ("run", "running", 300)
    assert (scene.training.heldout_step, scene.training.latest["loss"]) == (300, update(300)["loss"])
    assert scene.training.speed.tokens_per_s == 524_288
    assert scene.training.speed.tokens_per_s_per_device == 8192
    assert (scene.cores, [node.name for node in scene.nodes]) == (
        64,
        ["queue1-st-trn1-1", "queue1-st-trn1-2"],
    )
    assert scene.nodes[0].cores_per_device == 2
    assert [alarm.name for alarm in scene.alarms] == ["idle-while-paid", "slow-rank"]
    assert [(one.step, one.size_bytes, one.seconds) for one in scene.checkpoints] == [
        (150, 4_000_000, 1.5),
        (300, 4_000_000, 1.5),
    ]
    assert scene.log[-2:] == ("学習しています", "40 %")
    assert (scene.log_count, scene.ranks_with_logs, scene.notes) == (4, (0, 1), ())
    assert json.loads(json.dumps(scene.as_json()))["outlook"]["price_per_hour"] == 43.0


def test_mean_utilisation_is_that_of_all_cores(tmp_path: Path):
    """Nodes of 4 cores: 0.9, 0.88, 0.86, 0.84, and ten less of a hundred each on the second."""
    run = write_training(tmp_path / "run", cores=4)
    scene = source(run).look()
    assert scene.utilisation == pytest.approx((0.87 + 0.77) / 2)
    assert [node.utilisation for node in scene.nodes] == pytest.approx([0.87, 0.77])


def test_a_live_run_grows(tmp_path: Path):
    run = write_training(tmp_path / "run")
    looks = source(run)
    looks.look()
    append(run, update(301), evaluation(301))
    write_log(run, 0, *(f"line {number}" for number in range(9)))
    with (run / "logs/rank-0.log").open("a") as file:
        file.write("half a li")
    write_samples(run, sample("queue1-st-trn1-1", time=BEGUN_S + 604, busy=0.5))
    scene = looks.look()
    assert scene.status is not None
    assert scene.status.progress.step == 301
    assert scene.training.curves["loss"].xs["steps"][-1] == 301
    assert scene.training.heldout_curve is not None
    assert scene.training.heldout_curve.xs["steps"] == [150, 300, 301]
    assert scene.log[-1] == "line 8"
    assert [len(node.past) for node in scene.nodes] == [2, 1]


def test_held_out_points_stand_at_the_tokens_before_them(tmp_path: Path):
    run = write_run(tmp_path / "run", [attempt()])
    append(run, start(0, 9, 1), evaluation(0), update(1), update(2), evaluation(2))
    curve = source(run).look().training.heldout_curve
    assert curve is not None
    assert curve.xs["tokens"] == [0.0, 2 * 1_048_576]
    assert curve.xs["time"] == [BEGUN_S + 3, BEGUN_S + 3 + 4 + 3]


def test_a_long_file_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The newest loss is there at once, from the end of the file; curves grow until all of it is read."""
    monkeypatch.setattr(top_source, "_MOST_BYTES", 50_000)
    looks = source(write_training(tmp_path / "run"))
    scenes = [looks.look()]
    while scenes[-1].read_share < 1:
        scenes.append(looks.look())
    ends = [scene.training.curves["loss"].xs["steps"][-1] for scene in scenes]
    assert ends == sorted(set(ends))
    assert (len(ends) > 3, ends[-1]) == (True, 300)
    assert all(one.status is not None and one.status.progress.step == 300 for one in scenes)
    assert "of it has been read" in header(scenes[0], View(), 100).plain
    assert "of it has been read" not in header(scenes[-1], View(), 100).plain


def test_another_rank_has_its_own_log(tmp_path: Path):
    looks = source(write_training(tmp_path / "run"))
    looks.look()
    looks.turn_to(1)
    scene = looks.look()
    assert (scene.rank, scene.log, scene.log_count) == (1, ("rank 1 says nothing",), 1)
    looks.turn_to(9)
    assert looks.look().log == ()


def test_a_run_that_has_not_begun(tmp_path: Path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "submitted.yaml").write_text("name: run\n")
    scene = source(run).look()
    assert scene.status is not None
    assert (scene.status.state, scene.training.latest, scene.nodes, scene.notes) == ("stopped", {}, (), ())


def test_a_folder_that_goes_away_leaves_what_was_seen_last(tmp_path: Path):
    run = write_training(tmp_path / "run")
    looks = source(run)
    before = looks.look()
    shutil.rmtree(run)
    scene = looks.look()
    assert scene.gone
    assert (scene.training, scene.nodes) == (before.training, before.nodes)


def test_a_folder_that_goes_away_during_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = write_training(tmp_path / "run")
    looks = source(run)
    before = looks.look()
    monkeypatch.setattr(top_source, "read_alarms", lambda run: shutil.rmtree(run) or [])
    scene = looks.look()
    assert (scene.gone, scene.status, scene.checkpoints) == (True, before.status, before.checkpoints)


BROKEN = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'{"attempts": 3, "alarms": 3}',
    b'{"attempts": [3]}',
    b"\xff\xfe\x00",
    b"{}\n{",
]


@pytest.mark.parametrize("content", BROKEN)
@pytest.mark.parametrize(
    "name",
    ["run.json", "metrics.jsonl", "alarms.json", "saves.jsonl", "recipe.yaml", "logs/rank-0.log",
     "devices/queue1-st-trn1-1.jsonl", "results.json"],
)  # fmt: skip
def test_a_broken_file_is_noted_and_the_rest_is_there(tmp_path: Path, name: str, content: bytes):
    run = write_training(tmp_path / "run")
    (run / name).write_bytes(content)
    scene = source(run).look()
    assert len(scene.notes) <= 1
    if name != "run.json":
        assert scene.status is not None
    if name != "metrics.jsonl":
        assert scene.training.heldout_step == 300
    if not name.startswith("devices"):
        assert len(scene.nodes) == 2


def test_files_that_are_folders_are_noted(tmp_path: Path):
    run = write_training(tmp_path / "run")
    for name in ("metrics.jsonl", "alarms.json"):
        (run / name).unlink()
        (run / name).mkdir()
    scene = source(run).look()
    assert scene.status is None or scene.status.progress.step is None
    assert scene.notes


def test_a_checkpoint_that_is_rotated_away_is_no_more(tmp_path: Path):
    run = write_training(tmp_path / "run")
    looks = source(run)
    looks.look()
    shutil.rmtree(run / "checkpoints/step-00000150")
    write_checkpoint(run, 301)
    (run / "checkpoints/.tmp-step-00000302").mkdir()
    assert [one.step for one in looks.look().checkpoints] == [300, 301]


def test_the_past_begins_with_what_is_recorded(tmp_path: Path):
    run = write_run(tmp_path / "run", [attempt()])
    for second in range(5):
        write_samples(run, sample("a", 1, 0, BEGUN_S + second, busy=0.1 * second))
    (node,) = source(run).look().nodes
    assert node.past == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])


def test_the_scheduler_is_asked_now_and_then():
    calls, at = [], [0.0]

    class Counted(Slurm):
        def jobs(self, numbers):
            calls.append(list(numbers))
            if len(calls) == 2:
                raise ClusterError("it is busy")
            return {}

    patient = PatientSlurm(Counted(), now=lambda: at[0])
    assert patient.jobs([7]) == patient.jobs([7]) == {}
    at[0] = 11.0
    for _ in range(2):
        with pytest.raises(ClusterError, match="it is busy"):
            patient.jobs([7])
    assert calls == [[7], [7]]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("10 %\r20 %\r30 %", "30 %"),
        ("windows\r", "windows"),
        ("\x1b]0;title\x07text\x1b[2J", "text"),
        ("a\tb", "a       b"),
        ("日本語\x9b\x00", "日本語"),
    ],
)
def test_lines_of_logs_do_not_move_the_cursor(line: str, shown: str):
    assert cleaned(line) == shown


def test_nodes_are_in_the_order_of_their_numbers():
    assert sorted(["n10", "n2", "m", "n1"], key=natural) == ["m", "n1", "n2", "n10"]


def test_a_link_that_leads_nowhere_is_no_checkpoint_trouble(tmp_path: Path):
    run = write_training(tmp_path / "run")
    (run / "checkpoints/step-00000400").symlink_to(tmp_path / "nowhere")
    assert [one.step for one in source(run).look().checkpoints] == [150, 300, 400]
