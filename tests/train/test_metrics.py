import io
import json
from itertools import pairwise

import numpy as np
import pytest
from rich.console import Console

from kitae.errors import StorageError
from kitae.train.evaluate import Evaluation
from kitae.train.metrics import MetricsLog, read_records
from kitae.train.progress import LiveDisplay, PlainDisplay, Standing, clock, display
from kitae.train.results import heldout_summary, training_summary
from kitae.train.throughput import seconds_left, throughput


def test_speed_of_a_step():
    """T48: ga 4, bs 2, seq 128, dp 2, 1.0 s, a quarter padding: 2,048 padded and 1,536 real tokens/s."""
    padded = 4 * 2 * 128 * 2
    speed = throughput(
        padded_tokens=padded,
        real_tokens=padded * 3 // 4,
        seconds=1.0,
        devices=2,
        flops_per_token=10**6,
        peak_flops=2.048e9,
    )
    assert (speed.tokens_per_s, speed.real_tokens_per_s) == (2048, 1536)
    assert (speed.tokens_per_s_per_device, speed.real_tokens_per_s_per_device) == (1024, 768)
    assert speed.utilisation == pytest.approx(0.5)


def train(step, seconds=1.0, first=False, loss=2.0):
    return {
        "kind": "train",
        "step": step,
        "loss": loss,
        "padded_tokens": 2048,
        "real_tokens": 1536,
        "step_seconds": seconds,
        "first_step": first,
    }


def test_the_first_step_is_shown_apart_and_left_out_of_the_average():
    """T48: first step 300 s, then 1.0 s each; also after a resume."""
    records = [
        {"kind": "start", "step": 0},
        train(1, 300.0, first=True, loss=3.0),
        train(2),
        {"kind": "evaluation", "step": 2, "loss": 1.0},
        train(3),
        {"kind": "start", "step": 3},
        train(4, 200.0, first=True),
        train(5, loss=1.5),
    ]
    summary = training_summary(records)
    assert summary["first_step_seconds"] == 300.0
    assert (summary["tokens_per_s"], summary["real_tokens_per_s"]) == (2048, 1536)
    assert (summary["train_loss_first"], summary["train_loss_last"]) == (3.0, 1.5)
    assert (summary["steps"], summary["attempts"], summary["train_seconds"]) == (5, 2, 503.0)
    assert (summary["padded_tokens"], summary["real_tokens"]) == (5 * 2048, 5 * 1536)


def test_a_run_of_one_step_has_no_average_speed():
    summary = training_summary([train(1, first=True)])
    assert summary["tokens_per_s"] is None
    assert summary["train_loss_first"] == summary["train_loss_last"] == 2.0
    assert training_summary([])["train_loss_first"] is None


def test_heldout_summary():
    before = Evaluation(np.stack((np.array([8.0, 6.0]), np.array([4.0, 2.0]))))
    after = Evaluation(np.stack((np.array([4.0, 4.0]), np.array([4.0, 2.0]))))
    summary = heldout_summary(before, after)
    assert summary["loss_before"] == pytest.approx(14 / 6)
    assert summary["mean_drop"] == pytest.approx(1.0)
    assert (summary["rows_improved"], summary["tokens"]) == (2, 6)
    json.dumps(summary, allow_nan=False)
    assert heldout_summary(None, after) is None


def steps(path):
    return [(record["kind"], record["step"]) for record in read_records(path)]


def fill(path, resumed_step, records):
    with MetricsLog(path, resumed_step) as log:
        for record in records:
            log.write(record)


def test_lines_of_a_dead_time_line_are_cut(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    evaluation = {"kind": "evaluation", "step": 4, "loss": 1.0}
    fill(
        path, 0, [{"kind": "start", "step": 0}, train(1), train(2), train(3), train(4), evaluation, train(5)]
    )
    with path.open("a") as file:
        file.write('{"kind": "train", "step": 6, "lo')
    with MetricsLog(path, 4) as log:
        assert log.attempts == 1
        assert log.has_evaluation(4)
        log.write({"kind": "start", "step": 4})
    assert steps(path)[-3:] == [("train", 4), ("evaluation", 4), ("start", 4)]
    with MetricsLog(path, 2) as log:
        assert not log.has_evaluation(4)
        log.write(train(3))
    assert steps(path) == [("start", 0), ("train", 1), ("train", 2), ("start", 4), ("train", 3)]
    assert path.read_text().endswith("\n")
    assert [entry.name for entry in path.parent.iterdir()] == ["metrics.jsonl"]


def test_beginning_anew_keeps_only_the_count_of_attempts(tmp_path):
    path = tmp_path / "metrics.jsonl"
    fill(path, 0, [{"kind": "start", "step": 0}, {"kind": "evaluation", "step": 0, "loss": 1.0}, train(1)])
    with MetricsLog(path, 0) as log:
        assert log.attempts == 1
        assert not log.has_evaluation(0)
    assert steps(path) == [("start", 0)]


@pytest.mark.parametrize("broken", ["", "nonsense\n", '{"kind": "train", "step": 1', "\n"])
def test_broken_lines_are_passed_over(tmp_path, broken):
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps({"kind": "start", "step": 0}) + "\n" + broken)
    assert steps(path) == [("start", 0)]
    assert list(read_records(tmp_path / "none")) == []


def test_a_place_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        MetricsLog(tmp_path / "file" / "metrics.jsonl", 0)


def standing(step, steps=100):
    return Standing(step, steps, 2.34567, 1.5e-4, 12345.6, 125.0)


def test_plain_lines_come_first_now_and_then_and_last():
    time, lines = [0.0], []
    shown = PlainDisplay(lines.append, now=lambda: time[0])
    with shown:
        for step in range(1, 101):
            time[0] += 0.7
            shown.show(standing(step))
    numbers = [int(line.split()[1].split("/")[0]) for line in lines]
    assert (numbers[0], numbers[-1]) == (1, 100)
    assert all(0.7 * (later - earlier) >= 10 for earlier, later in pairwise(numbers[:-1]))
    assert len(numbers) == 8
    assert lines[0] == "step 1/100  loss 2.3457  lr 1.50e-04  12,346 tokens/s  2m05s left"


def test_the_live_line_is_redrawn_in_place():
    output = io.StringIO()
    with LiveDisplay(Console(file=output, force_terminal=True, width=120)) as shown:
        shown.show(standing(50))
        shown._progress.refresh()
    text = output.getvalue()
    assert "50/100" in text
    assert "loss 2.3457" in text
    assert "2m05s left" in text


@pytest.mark.parametrize(("terminal", "kind"), [(True, LiveDisplay), (False, PlainDisplay)])
def test_the_display_goes_by_the_terminal(monkeypatch, terminal, kind):
    monkeypatch.setattr("sys.stderr", type("Stream", (io.StringIO,), {"isatty": lambda self: terminal})())
    assert isinstance(display(print), kind)
    monkeypatch.setattr("sys.stderr", None)  # closed before the start
    assert isinstance(display(print), PlainDisplay)


def test_clock():
    assert [clock(seconds) for seconds in (0.4, 59.4, 60, 185, 3599.6, 7620)] == [
        "0s", "59s", "1m00s", "3m05s", "1h00m", "2h07m",
    ]  # fmt: skip
    assert seconds_left(2.5, 4) == 10
