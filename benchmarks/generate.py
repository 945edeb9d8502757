"""Speed and memory of `kitae generate`, in fp32 and int8, against `transformers.generate`.

    python benchmarks/generate.py [--model smollm2-135m] [--rounds 5] [--tokens 64] [--prompt-tokens 64]

All sides read the same weights and continue the same prompts greedily, in fp32 but for kitae's int8, each in
a process of its own. They take turns: in a round each generates `--tokens` tokens once while the others wait,
and the order changes from round to round. The first round is not counted. kitae's fp32 tokens must be those
of transformers. Seconds are those from the first new token to the last; the prompt's are told apart. Memory
is the most that a process has held, loading included, and what it held before it loaded anything.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from generate_sides import SIDES
from sides import Side, ratios, spread, take_turns

REFERENCE = "transformers"


def show(sides: list[Side], tokens: int, batch: int) -> None:
    """Tokens a second, ratios round by round, time to the first token, and peak memory."""
    peer = next(side for side in sides if side.name == REFERENCE)
    for side in sides:
        speeds = [(tokens - 1) * batch / seconds for seconds in side.seconds()]
        first = [answers[0]["first_s"] for answers in side.rounds]
        last = side.rounds[-1][0]
        print(
            f"{side.name:12} {spread(speeds, 1)} tokens/s, first token {spread(first, 3)} s, "
            f"peak {side.peak_bytes() / 1e6:,.0f} MB ({last['before_bytes'] / 1e6:,.0f} before loading)"
        )
    for side in sides:
        if side is not peer:
            faster = spread(ratios(peer.seconds(), side.seconds()), 2)
            cpu = spread(ratios(peer.cpu_seconds(), side.cpu_seconds()), 2)
            memory = side.peak_bytes() / peer.peak_bytes()
            print(
                f"{side.name} against {REFERENCE}: {faster} times as fast ({cpu} by CPU time), "
                f"{memory:.2f} of the memory"
            )


def check_tokens(sides: list[Side]) -> None:
    """What is computed in fp32 must be the same."""
    wanted = next(side for side in sides if side.name == REFERENCE).rounds[-1][0]["ids"]
    for side in sides:
        found = side.rounds[-1][0]["ids"]
        same = sum(one == other for one, other in zip(found, wanted, strict=True))
        print(f"{side.name}: {same} of {len(wanted)} texts have the tokens of {REFERENCE}")
        assert side.name != "kitae" or found == wanted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m", help="a model of kitae's catalogue, or a folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64, help="new tokens of each text")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--batch", type=int, default=1, help="texts at once")
    parser.add_argument("--threads", type=int, help="of each side; by default as torch has it")
    options = parser.parse_args()
    work = json.dumps({**vars(options), "model": str(folder_of(options.model))})
    sides = [Side(name, "generate_sides.py", work, threads=options.threads) for name in SIDES]
    take_turns(sides, options.rounds, warmup_rounds=1)
    check_tokens(sides)
    show(sides, options.tokens, options.batch)


def folder_of(model: str) -> Path:
    """A folder as it is; a model of the catalogue in kitae's cache."""
    if Path(model).is_dir():
        return Path(model).absolute()
    from kitae.checkpoint.fetch import model_folder
    from kitae.recipe.sources import ModelConfig
    from kitae.stages.job import cache_folder

    return model_folder(ModelConfig(named=model), base=Path.cwd(), cache=cache_folder(), report=print)


if __name__ == "__main__":
    main()
