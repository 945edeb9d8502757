"""The thread between a metrics file and a tracker."""

import json
import threading

import pytest
from tracking_case import KeepingTracker, append, evaluation, start, tracked, update

from kitae.train.tracking.follower import Follower
from kitae.train.tracking.memory import Memory


def follow(run, keeping, tell=lambda line: None, *, hides=False, outcome="finished", period_s=0.01):
    """One attempt, from its first look to its end."""
    follower = Follower("keeping", keeping.kind(hides=hides), run, Memory(run.folder), tell, period_s)
    follower.start()
    follower.close(outcome)
    assert not follower.is_alive()


def test_every_line_is_a_point_once_and_in_order(tmp_path):
    run, keeping = tracked(tmp_path), KeepingTracker()
    ranks = {"kind": "ranks", "step": 2, "compute_seconds": [1.0, 4.0, 2.0], "slow": []}
    append(run, start(), evaluation(0), update(1), update(2), ranks, evaluation(2, accuracy=0.5))
    follow(run, keeping)
    assert keeping.points == [
        (0, {"evaluation/loss": 2.0}),
        (1, {"train/loss": 2.9, "train/learning_rate": 0.1}),
        (2, {"train/loss": 2.8, "train/learning_rate": 0.1}),
        (2, {"ranks/slowest_compute_seconds": 4.0, "ranks/median_compute_seconds": 2.0}),
        (2, {"evaluation/loss": 1.8, "evaluation/accuracy": 0.5}),
    ]
    assert (keeping.opened, keeping.outcomes) == ([None], ["finished"])


def test_what_comes_while_it_follows_is_sent_and_half_a_line_is_not(tmp_path):
    run, keeping, sent = tracked(tmp_path), KeepingTracker(), threading.Event()
    keeping.send, usual = lambda points: (usual(points), sent.set()), keeping.send
    follower = Follower("keeping", keeping.kind(), run, Memory(run.folder), print, 0.01)
    follower.start()
    append(run, update(1))
    assert sent.wait(30)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')
    follower.close("stopped")
    assert keeping.steps == [1]
    assert keeping.outcomes == ["stopped"]


def test_many_lines_are_sent_in_parts_that_mlflow_takes(tmp_path):
    run, keeping, sizes = tracked(tmp_path), KeepingTracker(), []
    keeping.send, usual = lambda points: (sizes.append(len(points)), usual(points)), keeping.send
    append(run, *(update(step) for step in range(1, 251)))
    follow(run, keeping)
    assert sizes == [100, 100, 50]
    assert keeping.steps == list(range(1, 251))


def test_a_resumed_run_goes_on_in_the_same_tracked_run_without_doubled_steps(tmp_path):
    run, keeping = tracked(tmp_path), KeepingTracker()
    append(run, evaluation(0), *(update(step) for step in range(1, 6)))
    follow(run, keeping, outcome="failed")
    # It was killed after step 5, the checkpoint is of step 3, and steps 4 and 5 were trained again.
    run = tracked(tmp_path, resumed_step=3)
    append(run, start(3), evaluation(3), update(6))
    follow(run, keeping)
    assert keeping.opened == [None, "one"]
    assert [step for step, values in keeping.points if "train/loss" in values] == [1, 2, 3, 4, 5, 6]
    assert [step for step, values in keeping.points if "evaluation/loss" in values] == [0, 3]


def test_one_that_hides_gets_the_steps_of_the_new_time_line(tmp_path):
    run, keeping = tracked(tmp_path), KeepingTracker()
    append(run, *(update(step) for step in range(1, 6)))
    follow(run, keeping, hides=True)
    keeping.points.clear()
    follow(tracked(tmp_path, resumed_step=3), keeping, hides=True)
    assert keeping.steps == [4, 5]


def test_evaluations_of_two_phases_after_the_same_step_are_told_apart(tmp_path):
    run, keeping = tracked(tmp_path), KeepingTracker()
    append(run, evaluation(4, phase="short"), evaluation(4, phase="long"))
    follow(run, keeping)
    assert [list(values) for _, values in keeping.points] == [
        ["evaluation/short/loss"],
        ["evaluation/long/loss"],
    ]


def test_a_run_that_is_tracked_elsewhere_begins_there_anew(tmp_path):
    run, keeping = tracked(tmp_path), KeepingTracker()
    append(run, update(1))
    follow(run, keeping)
    follow(tracked(tmp_path, resumed_step=1, project="other"), keeping)
    assert keeping.opened == [None, None]
    assert keeping.steps == [1, 1]


@pytest.mark.parametrize("what", ["open", "send"])
def test_a_tracker_that_is_away_is_told_once_and_gets_everything_later(tmp_path, what):
    run, keeping, told, well = tracked(tmp_path), KeepingTracker(), [], threading.Event()
    keeping.failures[what] = 3

    def tell(line):
        told.append(line)
        if "answers again" in line:
            well.set()

    append(run, update(1), update(2))
    follower = Follower("keeping", keeping.kind(), run, Memory(run.folder), tell, 0.01)
    follower.start()
    assert well.wait(30)
    follower.close("finished")
    assert keeping.steps == [1, 2]
    assert sum("no network" in line for line in told) == 1
    assert "metrics.jsonl has everything" in "".join(told)


def test_one_that_never_answers_costs_the_training_nothing(tmp_path):
    run, keeping, told, asked = tracked(tmp_path), KeepingTracker(), [], threading.Event()
    keeping.failures["open"] = 1000
    follower = Follower(
        "keeping",
        keeping.kind(),
        run,
        Memory(run.folder),
        lambda line: (told.append(line), asked.set()),
        1000.0,
    )
    follower.start()
    assert asked.wait(30)
    follower.close("finished")
    assert not follower.is_alive()
    assert len(told) == len(keeping.opened) == 1


def test_one_that_hangs_is_left_behind(tmp_path):
    run, keeping, told, go = tracked(tmp_path), KeepingTracker(), [], threading.Event()
    keeping.send = lambda points: go.wait(30)
    append(run, update(1))
    follower = Follower("keeping", keeping.kind(), run, Memory(run.folder), told.append, 0.01)
    follower.start()
    follower.close("finished", wait_s=0.05)
    assert told[-1] == "tracking: keeping: has not taken everything in 0.05 s; metrics.jsonl has it"
    go.set()
    follower.join(30)


def test_a_close_that_fails_is_told(tmp_path):
    run, keeping, told = tracked(tmp_path), KeepingTracker(), []
    keeping.failures["close"] = 1
    follow(run, keeping, told.append)
    assert "close: no network" in told[-1]


def test_no_password_or_token_is_told_or_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "abcdefabcdef")
    run, keeping, told = tracked(tmp_path), KeepingTracker(), []
    keeping.shown += " with abcdefabcdef"
    append(run, update(1))
    keeping.failures["close"] = 1
    follow(run, keeping, told.append)
    kept = (tmp_path / "tracking.json").read_text()
    assert json.loads(kept)["keeping"]["place"] == "http://***@here/kitae"
    for secret in ("password", "token=abc", "abcdefabcdef"):
        assert secret not in kept + "".join(told)


def test_a_memory_that_is_broken_is_begun_anew(tmp_path):
    run, keeping = tracked(tmp_path), KeepingTracker()
    (tmp_path / "tracking.json").write_text('{"keeping": {"other": 1}}')
    append(run, update(1))
    follow(run, keeping)
    assert keeping.opened == [None]
    assert json.loads((tmp_path / "tracking.json").read_text())["keeping"]["sent"] == {"train": 1}
