"""What trackers cost a training: the same one with and without them, in turns.

    python benchmarks/tracking.py [--pairs 5] [--steps 300] [--sequence-length 64] [TRACKER ...]

First, what following costs: the CPU time, of all threads, that one update more takes of each tracker, from
followers of files with few and with many updates. It hardly depends on what else the machine does.

Then whole trainings. A tiny model with short updates is the worst case, as a tracker's work is the same for
an update of ten milliseconds as for one of ten seconds. Each training is a process of its own, `kitae train`,
and every pair is made in the other order than the one before it. Compared are the seconds of an update (the
median of the second half, and the mean of all, in which threads of trackers import their libraries), and what
the whole process takes of the CPU. The losses must be the same to the bit. W&B writes offline, MLflow into
SQLite, trackio on this disk.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from sides import spread

TEXT = Path(__file__).resolve().parents[1] / "recipes" / "demo" / "text" / "train"
TRACKERS = ("tensorboard", "wandb", "mlflow", "trackio")
WARM_UP = 20


@dataclass(frozen=True)
class Measured:
    """One training."""

    median: float
    """Seconds of an update of the second half."""
    mean: float
    cpu_seconds: float
    losses: tuple[float, ...]


def recipe(folder: Path, options: argparse.Namespace) -> Path:
    """A training of a tiny model."""
    values = {
        "kitae": 1,
        "name": "bench",
        "runs": str(folder / "runs"),
        "model": {"preset": "llama-tiny"},
        "data": {
            "train": [{"path": str(TEXT)}],
            "tokenizer": {"named": "smollm2-135m"},
            "sequence_length": options.sequence_length,
        },
        "training": {"duration": f"{options.steps} steps", "global_batch_size": 1, "precision": "fp32"},
    }
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(values))  # JSON is YAML
    return path


def measure(path: Path, folder: Path, trackers: tuple[str, ...], number: int) -> Measured:
    """Train once."""
    name = f"bench-{number}"
    flags = ("--set", f"name={name}", "--set", f"tracking.trackers=[{', '.join(trackers)}]")
    places = {"TRACKIO_DIR": str(folder / "trackio"), "WANDB_MODE": "offline"}
    with (folder / f"{name}.log").open("wb") as log:
        child = os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", "kitae", "train", str(path), *flags],
            {**os.environ, **places},
            file_actions=[(os.POSIX_SPAWN_DUP2, log.fileno(), one) for one in (1, 2)],
        )
        _, status, usage = os.wait4(child, 0)
    assert status == 0, (folder / f"{name}.log").read_text()
    lines = map(json.loads, (folder / "runs" / name / "metrics.jsonl").read_text().splitlines())
    updates = [one for one in lines if one["kind"] == "train"]
    seconds = [one["step_seconds"] for one in updates[WARM_UP:]]
    return Measured(
        median=statistics.median(seconds[len(seconds) // 2 :]),
        mean=statistics.fmean(seconds),
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        losses=tuple(one["loss"] for one in updates),
    )


def follow(name: str, updates: int) -> float:
    """CPU seconds of this process, with all its threads, for a follower of so many updates."""
    from kitae.recipe.tracking import TrackingConfig
    from kitae.train.tracking.follower import Follower
    from kitae.train.tracking.interface import TrackedRun
    from kitae.train.tracking.memory import Memory
    from kitae.train.tracking.points import TRAIN
    from kitae.train.tracking.table import TRACKERS as TABLE

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "runs" / "bench"
        folder.mkdir(parents=True)
        values = dict.fromkeys(TRAIN, 1.0 / 3)
        lines = (json.dumps({"kind": "train", "step": step, **values}) for step in range(1, updates + 1))
        (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
        run = TrackedRun(folder, "bench", TrackingConfig(), {}, 0)
        begun = time.process_time()
        follower = Follower(name, TABLE[name], run, Memory(folder), lambda line: None)
        follower.start()
        follower.close("finished", 600)
        return time.process_time() - begun


def per_update(name: str) -> float:
    """CPU microseconds that an update more takes of a tracker's follower; in processes of their own."""
    few, many = 500, 5500
    seconds = []
    for updates in (few, many):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "TRACKIO_DIR": folder, "WANDB_MODE": "offline"}
            command = [sys.executable, __file__, "--follow", str(updates), name]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            seconds.append(float(done.stdout.split()[-1]))
    return 1e6 * (seconds[1] - seconds[0]) / (many - few)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trackers", nargs="*", default=TRACKERS, help="all of them at once")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--sequence-length", type=int, default=64)
    parser.add_argument("--follow", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.follow:
        print(follow(options.trackers[0], options.follow))
        return
    for name in options.trackers:
        print(f"{name}: {spread([per_update(name) for _ in range(3)], 0)} us of CPU an update", flush=True)
    sides: dict[tuple[str, ...], list[Measured]] = {(): [], tuple(options.trackers): []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = recipe(folder, options)
        measure(path, folder, (), 0)  # prepares the text and imports the weights
        for pair in range(options.pairs):
            for trackers in list(sides)[:: 1 if pair % 2 else -1]:
                count = 1 + sum(map(len, sides.values()))
                sides[trackers].append(measure(path, folder, trackers, count))
            medians = [f"{1000 * measured[-1].median:.2f}" for measured in sides.values()]
            print(f"round {pair + 1}: {' and '.join(medians)} ms an update", flush=True)
    without, with_them = sides.values()
    assert len({one.losses for side in sides.values() for one in side}) == 1, "the losses differ"
    pairs = list(zip(without, with_them, strict=True))
    print(f"an update without trackers: {spread([1000 * one.median for one in without], 2)} ms")
    for what in ("median", "mean"):
        longer = [100 * (getattr(b, what) / getattr(a, what) - 1) for a, b in pairs]
        print(f"{', '.join(options.trackers)}: {what} of an update {spread(longer, 2)} % longer")
    more = [b.cpu_seconds - a.cpu_seconds for a, b in pairs]
    print(f"CPU time of the whole process: {spread(more, 2)} s more")


if __name__ == "__main__":
    main()
