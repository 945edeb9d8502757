"""What watching costs a training: the same one with and without its sampler, in turns.

    python benchmarks/watching.py [--pairs 5] [--steps 16] [--period 5]

Each training is a process of its own that runs the stage `train` of llama-10m on one thread, without saving
or evaluating. Three numbers, watched against alone: wall time of the updates but the first; CPU time of the
training's process and all that it started; and, of a watched one alone, CPU time of what it started (the
sampler, with its start) as a share of its own. Where others use the machine, the last says most.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

GOAL = 0.01
TEXT = Path(__file__).resolve().parents[1] / "recipes" / "demo" / "text" / "train"
NAMES = ("alone", "watched")


def main() -> None:
    """Measure, and print a line a pair, then what watching adds, with its spread."""
    if sys.argv[1:2] == ["--side"]:
        print(json.dumps(_train(Path(sys.argv[2]))))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--period", type=float, default=5.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kitae-watching-") as folder:
        os.environ |= {"KITAE_CACHE": f"{folder}/cache", "OMP_NUM_THREADS": "1"}
        pairs = [_pair(Path(folder), number, options) for number in range(options.pairs)]
    for what in pairs[0]:
        print(f"{what}: {_spread([pair[what] for pair in pairs])} (goal: below {GOAL:.0%})")


def _pair(folder: Path, number: int, options: argparse.Namespace) -> dict[str, float]:
    """One of each, in an order that alternates; what watching adds."""
    found = {}
    for name in NAMES[:: 1 if number % 2 else -1]:
        recipe = folder / f"{name}-{number}.yaml"
        recipe.write_text(json.dumps(_recipe(folder, recipe.stem, name == "watched", options)))
        command = [sys.executable, __file__, "--side", str(recipe)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        found[name] = json.loads(done.stdout.splitlines()[-1])
        print(f"pair {number + 1}, {name}: {found[name]}", flush=True)
    alone, watched = (found[name] for name in NAMES)
    assert alone["losses"] == watched["losses"], "what is learned must not change"
    return {
        "wall time": watched["wall_s"] / alone["wall_s"] - 1,
        "CPU time": (watched["cpu_s"] + watched["sampler_s"]) / alone["cpu_s"] - 1,
        "the sampler's CPU time": watched["sampler_s"] / watched["cpu_s"],
    }


def _spread(values: list[float]) -> str:
    middle = statistics.median(values)
    deviation = statistics.median(abs(one - middle) for one in values)
    return f"{middle:+.2%} ± {deviation:.2%} ({min(values):+.2%} to {max(values):+.2%})"


def _recipe(folder: Path, name: str, watched: bool, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "kitae": 1,
        "name": name,
        "runs": str(folder / "runs"),
        "model": {"preset": "llama-10m"},
        "data": {
            "train": [{"path": str(TEXT)}],
            "tokenizer": {"named": "smollm2-135m"},
            "sequence_length": 512,
        },
        "training": {"duration": f"{options.steps} steps", "global_batch_size": 2, "micro_batch_size": 2},
        "checkpoint": {"every": "never"},
        "target": {"backend": "cpu"},
        "watch": {"record": watched, "period_s": options.period},
    }


def _train(recipe: Path) -> dict[str, Any]:
    """Of one training: seconds of its updates, CPU time of its process, and of what it started."""
    from kitae.stages.job import open_job
    from kitae.stages.pipeline import run_stages
    from kitae.train.metrics import read_records

    job = open_job(recipe, report=lambda line: None)
    run_stages(job, "import")
    own, others = _cpu_s(resource.RUSAGE_SELF), _cpu_s(resource.RUSAGE_CHILDREN)
    run_stages(job, "train")
    updates = [one for one in read_records(job.run.metrics) if one["kind"] == "train"]
    return {
        "wall_s": round(sum(one["step_seconds"] for one in updates if not one["first_step"]), 3),
        "cpu_s": round(_cpu_s(resource.RUSAGE_SELF) - own, 3),
        "sampler_s": round(_cpu_s(resource.RUSAGE_CHILDREN) - others, 3),
        "losses": [one["loss"] for one in updates],
    }


def _cpu_s(whose: int) -> float:
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
