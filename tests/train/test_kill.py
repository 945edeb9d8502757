"""Trainings in processes of their own that are killed, stopped and started again."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_training import rows_of

from kitae.checkpoint.store import CheckpointStore
from kitae.train.metrics import read_records

VICTIM = Path(__file__).with_name("train_victim.py")


@pytest.fixture(scope="module")
def server():
    command = [sys.executable, str(VICTIM)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


@pytest.fixture(scope="module")
def run(server, tmp_path_factory):
    """Train in a new process; its exit code, the rows of its updates, and the rest of what it prints."""

    def train(folder, *die, steps=6, save_every="never", **sections):
        output = tmp_path_factory.mktemp("output") / "text"
        training = {"duration": f"{steps} steps", "global_batch_size": 4, "micro_batch_size": 2}
        given = {
            "training": training,
            "evaluation": {"every": "3 steps"},
            "checkpoint": {"every": save_every},
            **sections,
        }
        order = {"folder": str(folder), "output": str(output), "sections": given, "die": die}
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        lines = output.read_text().splitlines()
        rows = [json.loads(line.removeprefix("rows ")) for line in lines if line.startswith("rows ")]
        rest = "\n".join(line for line in lines if not line.startswith("rows "))
        assert "Traceback" not in rest, rest
        return code, rows, rest

    return train


def losses(folder):
    records = list(read_records(folder / "run" / "metrics.jsonl"))
    return [(one["kind"], one["step"], one["loss"]) for one in records if one["kind"] != "start"]


def bits_of(folder, step):
    checkpoint = CheckpointStore(folder / "run" / "checkpoints", keep=2).open(step)
    return {
        (kind, name): checkpoint.source(kind).read(name).numpy().tobytes()
        for kind in ("weights", "exp_avg", "exp_avg_sq")
        for name in checkpoint.source(kind).tensors()
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    def make():
        made = tmp_path_factory.mktemp("training")
        rows_of(made / "train", 24)
        rows_of(made / "heldout", 5, seed=1)
        return made

    return make


@pytest.fixture(scope="module")
def straight(run, folder):
    """A run of six steps that nobody disturbs."""
    made = folder()
    assert run(made, **OPTIONS)[0] == 0
    return made


OPTIONS = {"save_every": "4 steps", "schedule": {"warmup": "5 steps"}}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_two_kills_change_nothing(run, folder, precision):
    """Pain 2: 30 steps = 10 + 10 + 10 with two kill -9: the same rows, losses and state to the bit."""
    training = {
        "duration": "30 steps", "global_batch_size": 4, "micro_batch_size": 2, "precision": precision,
    }  # fmt: skip
    options = {"save_every": "10 steps", "training": training, "schedule": {"warmup": "12 steps"}}
    straight, killed = folder(), folder()
    code, wanted_rows, _ = run(straight, **options)
    assert (code, len(wanted_rows)) == (0, 30)
    first, rows_1, _ = run(killed, ["train", 14, "SIGKILL"], **options)
    second, rows_2, rest_2 = run(killed, ["train", 12, "SIGKILL"], **options)
    third, rows_3, rest_3 = run(killed, **options)
    assert (first, second, third) == (-9, -9, 0)
    assert [*rows_1[:10], *rows_2[:10], *rows_3] == wanted_rows
    assert (len(rows_1), len(rows_2), len(rows_3)) == (14, 12, 10)
    assert "after step 10 of 30" in rest_2
    assert "after step 20 of 30" in rest_3
    assert losses(killed) == losses(straight)
    assert bits_of(killed, 30) == bits_of(straight, 30)
    assert json.loads(rest_3.splitlines()[-1].removeprefix("done "))["attempts"] == 3


STOPS = {
    "train": (["train", 3, "SIGTERM"], 2),
    "evaluation before the first step": (["evaluation", 2, "SIGTERM"], 0),
    "evaluation": (["evaluation", 5, "SIGTERM"], 3),
    "evaluation after the last step": (["evaluation", 8, "SIGTERM"], 6),
    "first step": (["train", 1, "SIGTERM"], 0),
    "start": (["start", 1, "SIGTERM"], 0),
    "save": (["save", 1, "SIGTERM"], 4),
    "save, when it enters": (["enter", 1, "SIGINT"], 4),
}


@pytest.mark.parametrize("place", STOPS)
def test_a_signal_saves_the_last_finished_step(run, folder, straight, place):
    """T43: SIGTERM in training, evaluation, warm-up and a save: a complete checkpoint, and exit code 75."""
    die, step = STOPS[place]
    stopped = folder()
    code, _, rest = run(stopped, die, **OPTIONS)
    assert code == 75
    assert f"stopped by {die[2]} after step {step} of 6" in rest
    assert "run the same command again" in rest
    latest = CheckpointStore(stopped / "run" / "checkpoints", keep=2).latest()
    assert (latest.step if latest else 0) == step
    assert run(stopped, **OPTIONS)[0] == 0
    assert losses(stopped) == losses(straight)
    assert bits_of(stopped, 6) == bits_of(straight, 6)


def test_a_second_interrupt_stops_at_once(run, folder):
    """The last good checkpoint stays, and the run goes on from it."""
    victim = folder()
    code, _, rest = run(victim, ["train", 6, "SIGINT"], ["save", 2, "SIGINT"], save_every="4 steps")
    assert code == 128 + signal.SIGINT
    assert "stopped" not in rest
    assert CheckpointStore(victim / "run" / "checkpoints", keep=2).latest().step == 4
    assert run(victim, save_every="4 steps")[0] == 0


def test_a_second_sigterm_does_not_hurry(run, folder):
    victim = folder()
    assert run(victim, ["train", 3, "SIGTERM"], ["save", 1, "SIGTERM"])[0] == 75
    assert CheckpointStore(victim / "run" / "checkpoints", keep=2).latest().step == 2
