"""Fine-tuning speed and memory of kitae against the HF Trainer: Japanese sentences, good or bad.

    python benchmarks/train_encoder.py [--preset bert-base] [--rounds 5] [--dropout 0] [--tuned-peers]

The model is that of `recipes/ja-sentiment-cpu.yaml` (make it with `recipes/japanese/build.py`), or a preset
with random weights. Both sides train the same weights on the same rows in the same order with the same AdamW,
in fp32, with the same share of dropout, every row padded to the full length, each in a process of its own.
They take turns: in a round each makes `--steps` updates while the other waits, and the order changes from
round to round. The first updates are not counted. kitae runs its real loop, with its metrics and data path;
no side comes to its end, so none pays for saving.

Dropout draws other numbers on either side, so losses differ with it; with `--dropout 0` they must agree:
both do the same work. `--tuned-peers` is as in `train_decoder.py`. With `--trim-peers` the HF
Trainer cuts every batch at its longest row, as it does when it pads by itself; kitae's shapes are static.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from encoder_sides import BUILT, SIDES, EncoderWork
from sides import Side, check_losses, ratios, spread, take_turns


def show(ours: Side, theirs: Side, samples: int) -> None:
    """Samples a second, ratios round by round, and peak memory."""
    for side in (ours, theirs):
        speeds = [samples / seconds for seconds in side.seconds()]
        cpu = statistics.median(side.cpu_seconds()) / samples
        print(
            f"{side.name:8} {spread(speeds, 1)} samples/s, {cpu * 1000:.1f} ms of CPU time a sample, "
            f"peak {side.peak_bytes() / 1e9:.2f} GB, mean loss {statistics.mean(side.losses()):.3f}"
        )
    faster = spread(ratios(theirs.seconds(), ours.seconds()), 2)
    cheaper = spread(ratios(theirs.cpu_seconds(), ours.cpu_seconds()), 2)
    memory = ours.peak_bytes() / theirs.peak_bytes()
    print(f"kitae against {theirs.name}: {faster} times as fast, {memory:.2f} of the memory")
    print(f"by CPU time: {cheaper} times as fast")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--preset", help="a shape of kitae's catalogue with random weights, instead of the recipe's encoder"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="updates in a round")
    parser.add_argument("--warmup-rounds", type=int, default=1)
    parser.add_argument("--sequence-length", type=int, default=32)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--dropout", type=float, help="of both sides; default: as the model's config says")
    parser.add_argument("--threads", type=int, help="of each side; default: as torch takes them")
    parser.add_argument("--tuned-peers", action="store_true")
    parser.add_argument("--trim-peers", action="store_true")
    return parser.parse_args()


def main() -> None:
    options = parse()
    rounds = options.warmup_rounds + options.rounds
    model = {"preset": options.preset} if options.preset else {"folder": str(BUILT / "encoder")}
    with tempfile.TemporaryDirectory() as folder:
        work = EncoderWork.prepare(Path(folder), model, options, updates=rounds * options.steps + 1)
        sides = [Side(name, "encoder_sides.py", work.to_json(), threads=options.threads) for name in SIDES]
        take_turns(sides, options.rounds, options.warmup_rounds)
    if options.dropout == 0:
        check_losses(sides)
    ours, theirs = sides
    show(ours, theirs, options.steps * options.batch)


if __name__ == "__main__":
    main()
