"""Training speed and memory of kitae against the HF Trainer and a bare PyTorch loop around `transformers`.

    python benchmarks/train_decoder.py [--model NAME | --preset llama-10m] [--rounds 5] [--tuned-peers]

All three train the same weights on the same rows in the same order with the same AdamW, in fp32, each in a
process of its own. They take turns: in a round each makes `--steps` updates while the others wait, and the
order changes from round to round. The first updates are not counted. The losses of the counted updates must
agree, so that all have done the same work. kitae runs its real loop, with its metrics and data path; no side
comes to its end, so none pays for saving.

kitae lets oneDNN multiply on processors where that is faster than torch's default (backend/cpu.py);
`--tuned-peers` gives the peers the same setting, which they do not have by themselves.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from sides import Side, check_losses, ratios, spread, take_turns
from train_sides import SIDES, Work

REFERENCE = "kitae"


def show(sides: list[Side], tokens: int) -> None:
    """Tokens a second, ratios round by round, and peak memory."""
    ours = next(side for side in sides if side.name == REFERENCE)
    for side in sides:
        speeds = [tokens / seconds for seconds in side.seconds()]
        print(f"{side.name:8} {spread(speeds, 0)} tokens/s, peak {side.peak_bytes() / 1e9:.2f} GB")
    for side in sides:
        if side is not ours:
            faster = spread(ratios(side.seconds(), ours.seconds()), 2)
            memory = ours.peak_bytes() / side.peak_bytes()
            print(f"kitae against {side.name}: {faster} times as fast, {memory:.2f} of the memory")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m", help="a model of kitae's catalogue")
    parser.add_argument(
        "--preset", help="a shape of kitae's catalogue with random weights, instead of --model"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1, help="updates in a round")
    parser.add_argument("--warmup-rounds", type=int, default=2)
    parser.add_argument("--sequence-length", type=int, default=512)
    parser.add_argument("--micro-batch", type=int, default=2)
    parser.add_argument("--accumulation", type=int, default=2)
    parser.add_argument("--tuned-peers", action="store_true")
    options = parser.parse_args()
    rounds = options.warmup_rounds + options.rounds
    model = {"preset": options.preset} if options.preset else {"named": options.model}
    with tempfile.TemporaryDirectory() as folder:
        work = Work.prepare(Path(folder), model, options, updates=rounds * options.steps + 1)
        sides = [Side(name, "train_sides.py", work.to_json()) for name in SIDES]
        take_turns(sides, options.rounds, options.warmup_rounds)
    check_losses(sides)
    show(sides, options.steps * options.micro_batch * options.accumulation * options.sequence_length)


if __name__ == "__main__":
    main()
