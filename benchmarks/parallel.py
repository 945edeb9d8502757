"""What cutting a training over processes costs: time, memory, bytes moved, and the stall of saves.

    python benchmarks/parallel.py [--only PART ...] [--rounds 5] [--tuned-peers]

Everything runs on the same cores: one process has a thread for each, of several processes each has its part.
The two sides of a pair train the same weights on the same rows in the same order with the same AdamW in fp32,
and take turns: in a round each makes `--steps` updates while the other waits; who is first changes from round
to round. The first rounds are not counted. The losses must agree, so that both have done the same work.
kitae's sides run its real loop. Ratios are of the left side over the right one: below 1, the left is faster
or smaller. Memory is the peak of the fullest rank. CPU time, of all ranks together, leaves out waits, and a
busy machine moves it less.

The pairs are the keys of `PAIRS`, the other part is `saves`. Sides: `one` process; `tp`, tensor parallel;
`tp-sequence`, with sequence parallelism; `dp`, data parallel; `dp-zero1`, with the optimizer cut; `dp-late`,
where no gradient travels before the backward pass ends; `transformers-tp`, transformers' `tp_plan="auto"`;
`ddp`, torch's DistributedDataParallel around transformers; `ddp-zero`, that with ZeroRedundancyOptimizer.

kitae lets oneDNN multiply on processors where that is faster than torch's default (backend/cpu.py);
`--tuned-peers` gives the peers the same setting, which they do not have by themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sides import Side, check_losses, ratios, spread, take_turns
from train_sides import Work

PAIRS = {
    "tp": ("tp", "one"),
    "tp-sequence": ("tp-sequence", "one"),
    "dp": ("dp", "one"),
    "dp-zero1": ("dp-zero1", "one"),
    "overlap": ("dp", "dp-late"),
    "tp-peer": ("tp", "transformers-tp"),
    "dp-peer": ("dp", "ddp"),
    "zero1-peer": ("dp-zero1", "ddp-zero"),
}
SAVERS = ("one", "dp-zero1")
STALLS = {
    "copy": "one copy in memory",
    "sync": "save",
    "begin": "begin_save",
    "written": "begin_save, until published, without training",
    "begin_beside": "begin_save before updates",
    "added": "added to the updates by one begin_save",
}
SHAPE = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_layers": 6,
    "num_heads": 8,
    "num_kv_heads": 4,
}
"""Of --preset: SmolLM2-135M's 9 heads cannot be shared by two ranks."""


def side_of(name: str, work: Work, options: argparse.Namespace, program: str = "parallel_sides.py") -> Side:
    """Start a side on all cores."""
    ranks = 1 if name == "one" else options.ranks
    return Side(name, program, work.to_json(), ranks=ranks, threads=max(1, options.cores // ranks))


def compare(pair: tuple[str, str], work: Work, options: argparse.Namespace) -> list[Side]:
    """Time a pair and print a line of it."""
    sides = [side_of(name, work, options) for name in pair]
    take_turns(sides, options.rounds, options.warmup_rounds)
    check_losses(sides)
    left, right = sides
    seconds = spread(ratios(left.seconds(), right.seconds()), 2)
    cpu = spread(ratios(left.cpu_seconds(), right.cpu_seconds()), 2)
    memory = left.peak_bytes() / right.peak_bytes()
    speed = options.steps * tokens_of(options) / sorted(left.seconds())[options.rounds // 2]
    print(f"{' / '.join(pair):28} {seconds:28} {cpu:28} {memory:6.2f} {speed:12,.0f}", flush=True)
    return sides


def tokens_of(options: argparse.Namespace) -> int:
    """Of an update."""
    return int(options.micro_batch * options.accumulation * options.sequence_length)


def show_traffic(sides: Mapping[str, Side]) -> None:
    """Bytes of the last update, which have to be those of the closed form on every rank."""
    print("\nbytes that rank 0 gives to collectives in an update")
    for name, side in sides.items():
        for answer in side.rounds[-1]:
            assert answer["moved"] == answer["expected"], f"{name}: {answer}"
        first = side.rounds[-1][0]
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in first["moved"].items())
        print(f"{name:12} {kinds}: as in closed form; control {first['control']:,.0f}")


def saves(name: str, work: Work, options: argparse.Namespace) -> None:
    """Time the saves of one side against a copy of its state, and its steps beside a save."""
    side = side_of(name, work, options, "parallel_saves.py")
    take_turns([side], options.save_rounds, warmup_rounds=1)

    def worst(key: str) -> list[float]:
        return [max(answer[key] for answer in answers) for answers in side.rounds]

    copy = worst("copy")
    megabytes = side.rounds[0][0]["state_bytes"] / 1e6
    print(f"\n{name}: saves of {megabytes:,.0f} MB a rank, {options.save_rounds} rounds; seconds, copies")
    for key, label in STALLS.items():
        print(f"{label:44} {spread(worst(key), 3):28} {spread(ratios(worst(key), copy), 2)}")
    print(f"{'an update beside a save / alone':44} {spread(worst('slower'), 2)}")
    print(f"{'updates until it is published':44} {spread(worst('updates'), 0)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = (*PAIRS, "saves")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts, metavar="PART", help=str(parts))
    parser.add_argument("--preset", default="llama-135m", help="a shape of kitae's catalogue")
    parser.add_argument("--shape", type=json.loads, default=SHAPE, help="changes to its sizes, as JSON")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1, help="updates in a round")
    parser.add_argument("--warmup-rounds", type=int, default=1)
    parser.add_argument("--save-rounds", type=int, default=7)
    parser.add_argument("--sequence-length", type=int, default=512)
    parser.add_argument("--micro-batch", type=int, default=2)
    parser.add_argument(
        "--accumulation", type=int, default=2, help="micro-batches of an update, of all ranks"
    )
    parser.add_argument("--tuned-peers", action="store_true")
    parser.add_argument("--folder", type=Path, help="where to save; a temporary folder by default")
    options = parser.parse_args()
    updates = (options.warmup_rounds + options.rounds) * options.steps + 1
    model: dict[str, Any] = {"preset": options.preset, "shape": options.shape}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        work = Work.prepare(Path(folder), model, options, updates=updates)
        pairs = [PAIRS[part] for part in options.only if part in PAIRS]
        if pairs:
            print(f"{'':28} {'time':28} {'CPU time':28} {'memory':>6} {'tokens/s':>12}", flush=True)
        sides = [side for pair in pairs for side in compare(pair, work, options)]
        cut = {side.name: side for side in sides if "moved" in side.rounds[-1][0] and side.name != "one"}
        if cut:
            show_traffic(cut)
        if "saves" in options.only:
            for name in SAVERS:
                saves(name, work, options)


if __name__ == "__main__":
    main()
