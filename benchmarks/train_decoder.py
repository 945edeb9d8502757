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
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from train_sides import ANSWER, SIDES, Work

REFERENCE = "kitae"
LOSS_TOLERANCE = 2e-3


class Side:
    """One of the three in its process: it gets a line for each round and answers with one."""

    def __init__(self, name: str, work: Work) -> None:
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        command = [sys.executable, str(Path(__file__).with_name("train_sides.py")), name, work.to_json()]
        self.name = name
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.rounds: list[dict[str, float]] = []
        assert self._read() == {"ready": True}

    def round(self, counted: bool) -> None:
        """Make the updates of one round."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        answer = self._read()
        if counted:
            self.rounds.append(answer)

    def end(self) -> None:
        """Stop the process."""
        self.process.kill()
        self.process.wait()

    def _read(self) -> dict[str, float]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                return json.loads(line.removeprefix(ANSWER))
        raise SystemExit(f"{self.name} ended with code {self.process.wait()}")


def spread(values: list[float], digits: int) -> str:
    """Median with its median absolute deviation and range."""
    middle = statistics.median(values)
    deviation = statistics.median(abs(value - middle) for value in values)
    low, high = min(values), max(values)
    return f"{middle:,.{digits}f} ± {deviation:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def check_losses(sides: list[Side]) -> None:
    """All sides have to have trained the same."""
    for side in sides:
        for ours, theirs in zip(sides[0].rounds, side.rounds, strict=True):
            difference = abs(ours["loss"] - theirs["loss"])
            assert difference <= LOSS_TOLERANCE, (
                f"{side.name}: loss {theirs['loss']}, {ours['loss']} expected"
            )


def show(sides: list[Side], tokens: int) -> None:
    """Tokens a second, ratios round by round, and peak memory."""
    ours = next(side for side in sides if side.name == REFERENCE)
    for side in sides:
        speeds = [tokens / one["seconds"] for one in side.rounds]
        print(f"{side.name:8} {spread(speeds, 0)} tokens/s, peak {peak_bytes(side) / 1e9:.2f} GB")
    for side in sides:
        if side is ours:
            continue
        pairs = zip(ours.rounds, side.rounds, strict=True)
        ratios = [theirs["seconds"] / own["seconds"] for own, theirs in pairs]
        memory = peak_bytes(ours) / peak_bytes(side)
        print(f"kitae against {side.name}: {spread(ratios, 2)} times as fast, {memory:.2f} of the memory")


def peak_bytes(side: Side) -> float:
    """Most memory that the process has held."""
    return side.rounds[-1]["peak_bytes"]


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
    with tempfile.TemporaryDirectory() as folder:
        work = Work.prepare(Path(folder), options, updates=rounds * options.steps + 1)
        sides = [Side(name, work) for name in SIDES]
        try:
            for number in range(rounds):
                for side in sides[number % 3 :] + sides[: number % 3]:
                    side.round(counted=number >= options.warmup_rounds)
        finally:
            for side in sides:
                side.end()
    check_losses(sides)
    show(sides, options.steps * options.micro_batch * options.accumulation * options.sequence_length)


if __name__ == "__main__":
    main()
