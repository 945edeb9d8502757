"""Step times that plans of this machine foresee, against trainings that are really made here.

    python benchmarks/plan_steps.py [--state FOLDER] [--cpu-time] [--steps 10] [--only NAME]

After `kitae calibrate`, each recipe is planned and trained for some updates; no plan has seen a training
of its family before. Then one training of each family, a recipe of other sizes, is learned from, and the
same recipes are planned again. `median` and `fastest` are those of a training's updates after its first.

How much slower products were right before and after each training than at their best is printed, too: on a
machine that others use, errors say little where that is far from 1. With `--cpu-time` every clock is that of
the process: one thread, and only the time that it had a core; what processes wait for each other is not in
it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from tiny_tokenizer import train_backend, write_tokenizer
from tiny_wordpiece import write_wordpiece

ROOT = Path(__file__).resolve().parents[1]
CLOCK = "import time\ntime.perf_counter = time.process_time\n"
WORDS = ["good", "bad", "book", "film", "the", "a", "very", "not", "unwanted", "curvature", "of", "space"]


def decoder(
    length: int, rows: int, micro: int, *, parallel: str = "", precision: str = "fp32", **shape: int
) -> dict[str, Any]:
    """A decoder of these sizes; `parallel` is tp or dp, for two processes."""
    data = {"train": [{"path": "text.txt", "document": "line"}], "tokenizer": {"folder": "words"}}
    return _recipe("llama-10m", "causal-lm", data, length, rows, micro, parallel, precision, shape)


def masked(
    length: int, rows: int, micro: int, *, parallel: str = "", precision: str = "fp32", **shape: int
) -> dict[str, Any]:
    """An encoder that learns masked tokens."""
    data = {
        "train": [{"path": "text.txt", "document": "line"}],
        "tokenizer": {"folder": "pieces"},
        "masking": {"sentences": "line", "next_sentence": False, "short_sequence_probability": 0.0},
    }
    return _recipe("bert-mini", "masked-lm", data, length, rows, micro, parallel, precision, shape)


def classes(length: int, rows: int, micro: int, **shape: int) -> dict[str, Any]:
    """An encoder that learns labels."""
    data = {
        "train": [{"path": "labelled.jsonl"}],
        "tokenizer": {"folder": "pieces"},
        "labels": {"field": "label"},
    }
    return _recipe("bert-mini", "classification", data, length, rows, micro, "", "fp32", shape)


def _recipe(
    preset: str,
    objective: str,
    data: dict[str, Any],
    length: int,
    rows: int,
    micro: int,
    parallel: str,
    precision: str,
    shape: dict[str, int],
) -> dict[str, Any]:
    return {
        "kitae": 1,
        "objective": objective,
        "model": {"preset": preset, "shape": shape},
        "data": {**data, "sequence_length": length, "workers": 0},
        "training": {
            "precision": precision,
            "global_batch_size": rows,
            "micro_batch_size": micro,
        },
        "parallel": {
            "tensor_parallel_size": 2 if parallel == "tp" else 1,
            "data_parallel_size": 2 if parallel == "dp" else 1,
        },
    }


SMALL = {"hidden_size": 192, "intermediate_size": 512, "num_layers": 6, "num_heads": 6, "num_kv_heads": 6}
MEDIUM = {"hidden_size": 512, "intermediate_size": 1408, "num_layers": 4, "num_heads": 8, "num_kv_heads": 2}
LONG = {"hidden_size": 256, "intermediate_size": 704, "num_layers": 3, "num_heads": 8, "num_kv_heads": 4}
WIDE = {"hidden_size": 192, "intermediate_size": 512, "num_layers": 3, "num_heads": 6, "num_kv_heads": 2}
HALF = {"hidden_size": 256, "intermediate_size": 768, "num_layers": 6, "num_heads": 4, "num_kv_heads": 4}
TWO = {"hidden_size": 384, "intermediate_size": 1024, "num_layers": 4, "num_heads": 6, "num_kv_heads": 6}
BERT = {"hidden_size": 320, "intermediate_size": 1280, "num_layers": 4, "num_heads": 5, "vocab_size": 8000}
CLASSES = {
    "hidden_size": 312,
    "intermediate_size": 1200,
    "num_layers": 4,
    "num_heads": 12,
    "vocab_size": 8000,
}

UNSEEN = {
    "decoder, small": decoder(128, 8, 8, **SMALL, vocab_size=4000),
    "decoder, medium, 4 queries a key": decoder(256, 4, 2, **MEDIUM, vocab_size=8000),
    "decoder, 1,024 tokens": decoder(1024, 1, 1, **LONG, vocab_size=4000),
    "decoder, vocabulary of 32,000": decoder(128, 4, 4, **WIDE, vocab_size=32000),
    "decoder, bf16-sr": decoder(256, 4, 4, precision="bf16-sr", **HALF, vocab_size=6000),
    "BERT, masked": masked(128, 16, 8, **BERT),
    "BERT, classes": classes(64, 32, 16, **CLASSES),
    "decoder, tp 2": decoder(256, 4, 4, parallel="tp", **TWO, vocab_size=8000),
    "decoder, dp 2": decoder(128, 8, 4, parallel="dp", **TWO, vocab_size=8000),
}
BASE = {"hidden_size": 256, "intermediate_size": 704, "num_layers": 4, "num_heads": 8, "num_kv_heads": 4}
TEACHERS = {
    "decoder": decoder(256, 4, 4, **BASE, vocab_size=6000),
    "decoder, bf16-sr": decoder(128, 8, 8, precision="bf16-sr", **BASE, vocab_size=4000),
    "masked": masked(64, 16, 16, hidden_size=256, num_layers=3, num_heads=4, intermediate_size=1024),
    "classes": classes(128, 16, 8, hidden_size=256, num_layers=3, num_heads=4, intermediate_size=1024),
    "decoder, tp 2": decoder(128, 8, 8, parallel="tp", **BASE, vocab_size=6000),
    "decoder, dp 2": decoder(256, 4, 2, parallel="dp", **BASE, vocab_size=6000),
}
"""One of each family, precision and number of processes, copies and cut ones apart."""


class Bench:
    """A folder with text, tokenizers and recipes, and two state folders: with a history and without."""

    def __init__(self, folder: Path, state: Path, steps: int, cpu_time: bool) -> None:
        self.folder, self.state, self.steps, self.cpu_time = folder, state, steps, cpu_time
        draw = random.Random(0)
        lines = [" ".join(draw.choices(WORDS, k=60)) for _ in range(6000)]
        (folder / "text.txt").write_text("\n".join(lines) + "\n")
        labelled = [
            {"text": " ".join(line.split()[:40]), "label": "ab"[place % 2]}
            for place, line in enumerate(lines)
        ]
        (folder / "labelled.jsonl").write_text("".join(json.dumps(one) + "\n" for one in labelled))
        write_tokenizer(folder / "words", train_backend(lines[:200]).to_str())
        write_wordpiece(folder / "pieces")
        (folder / "clock").mkdir()
        (folder / "clock" / "sitecustomize.py").write_text(CLOCK)

    def kitae(self, *words: str, state: Path) -> str:
        """Run the command line; what it prints."""
        paths = [str(ROOT / "src"), *([str(self.folder / "clock")] if self.cpu_time else [])]
        more = {"OMP_NUM_THREADS": "1"} if self.cpu_time else {}
        caches = {"KITAE_CACHE": str(self.folder / "cache"), "KITAE_STATE": str(state)}
        environment = {**os.environ, **caches, **more, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-m", "kitae", *words]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def write(self, name: str, recipe: dict[str, Any], kind: str) -> str:
        """The recipe's file."""
        slug = f"{kind}-" + "".join(one if one.isalnum() else "-" for one in name)
        training = {**recipe["training"], "duration": f"{self.steps} steps"}
        (self.folder / f"{slug}.yaml").write_text(
            yaml.safe_dump({**recipe, "name": slug, "training": training})
        )
        return slug

    def trained(self, slug: str, state: Path) -> dict[str, Any]:
        """Plan and train a recipe; predicted and actual."""
        self.kitae("train", f"{slug}.yaml", state=state)
        (found,) = json.loads((self.folder / f"runs/{slug}/accuracy.json").read_text())["attempts"]
        return dict(found)

    def planned(self, slug: str, state: Path) -> dict[str, Any]:
        """What a plan says now."""
        again = ["--set", f"name={slug}-again"]
        plan = json.loads(self.kitae("plan", f"{slug}.yaml", *again, "--json", state=state))
        return dict(plan["estimate"]["phases"][0])

    def forget_load(self, state: Path) -> None:
        """Processor time counts however busy the machine is."""
        path = state / "history.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps({**line, "load": 0.0}) + "\n" for line in lines))


def slowed(tries: int = 40) -> float:
    """How much longer a product takes on average than at its best: others on the machine, at this moment."""
    square = np.ones((384, 384), np.float32)
    seconds = []
    for _ in range(tries):
        begin = time.perf_counter()
        square @ square
        seconds.append(time.perf_counter() - begin)
    return fmean(seconds[1:]) / min(seconds)


def main() -> None:
    """Print a table."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--state", type=Path, help="keep calibration here, or take the one that is here")
    options.add_argument("--cpu-time", action="store_true")
    options.add_argument("--steps", type=int, default=10)
    options.add_argument("--only", default="")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        state = (given.state or folder / "state").absolute()
        bench = Bench(folder, state, given.steps, given.cpu_time)
        if not (state / "calibration").is_dir():
            print(bench.kitae("calibrate", state=state).splitlines()[0], flush=True)
        _run(bench, {name: one for name, one in UNSEEN.items() if given.only in name})


def _run(bench: Bench, recipes: dict[str, dict[str, Any]]) -> None:
    fresh, taught = bench.folder / "fresh", bench.folder / "taught"
    for one in (fresh, taught):
        one.mkdir()
        (one / "calibration").symlink_to(bench.state / "calibration")
    measured = {}
    for name, recipe in recipes.items():
        slug, before = bench.write(name, recipe, "unseen"), slowed()
        measured[name] = slug, bench.trained(slug, fresh)
        (fresh / "history.jsonl").unlink()
        load, factor = measured[name][1]["load"], (before + slowed()) / 2
        busy = "" if bench.cpu_time else f", products take {factor:.2f} x as long as at their best"
        print(f"trained {name}: load {load:.1f}{busy}", flush=True)
    for name, recipe in TEACHERS.items():
        bench.trained(bench.write(name, recipe, "teacher"), taught)
    if bench.cpu_time:
        bench.forget_load(taught)
    head = (
        "recipe",
        "median ms",
        "fastest",
        "planned",
        "error",
        "of fastest",
        "inside",
        "taught",
        "error",
        "of fastest",
        "inside",
    )
    print("{:34} {:>9} {:>8} {:>8} {:>7} {:>10} {:>7} {:>8} {:>7} {:>10} {:>7}".format(*head))
    errors: list[list[float]] = []
    for name, (slug, found) in measured.items():
        again = bench.planned(slug, taught)
        first = found["predicted"]
        plans = [
            (first["step_s"], (first["step_s_low"], first["step_s_high"])),
            (again["step_s"], again["step_s_interval"]),
        ]
        median, fastest = found["actual"]["step_s"], found["actual"]["step_best_s"]
        line = f"{name:34} {median * 1e3:9.1f} {fastest * 1e3:8.1f}"
        row = []
        for planned, (low, high) in plans:
            row += [planned / median - 1, planned / fastest - 1]
            inside = "yes" if low <= median <= high else "no"
            line += f" {planned * 1e3:8.1f} {row[-2]:+7.1%} {row[-1]:+10.1%} {inside:>7}"
        errors.append(row)
        print(line, flush=True)
    print(bench.kitae("plan", "--accuracy", state=taught), end="")
    for place, what in enumerate(
        ("untaught, median", "untaught, fastest", "taught, median", "taught, fastest")
    ):
        column = [abs(row[place]) for row in errors]
        print(f"{what:18} mean {fmean(column):.1%}, worst {max(column):.1%}")


if __name__ == "__main__":
    main()
