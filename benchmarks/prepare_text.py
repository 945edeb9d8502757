"""How fast text becomes packed rows, against the tokenizer alone on the same cores; and time against length.

    python benchmarks/prepare_text.py [TEXT.txt] [--tokenizer FOLDER] [--pairs 5] [--mebibytes 32]

Two measures, printed as JSON:
- ratio: seconds of `tokenizers.encode_batch` alone (all cores, nothing kept but counts) over seconds of the
  whole `prepare` (hash, read, worker start, tokenise, pack, fsync, publish), in interleaved pairs. 1 means
  that everything but tokenisation is free. `cpu_ratio` is the same in CPU seconds, which a busy machine
  moves less.
- doubling: CPU seconds for one document of 10 MB on one line over those for its first half; linear is 2.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from kitae.data.prepare import prepare
from kitae.data.tokenise import Encoder, EncoderSpec
from kitae.data.tokenizer import TextTokenizer
from kitae.data.workers import available_cores
from kitae.recipe.sources import DataConfig


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Wall seconds, and CPU seconds of this process and the workers that ended in it."""
    wall, cpu = time.perf_counter(), sum(os.times()[:4])
    work()
    return time.perf_counter() - wall, sum(os.times()[:4]) - cpu


def spread(values: list[float]) -> dict[str, float]:
    numbers = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {name: round(value, 3) for name, value in numbers.items()}


def generated_text(size: int) -> str:
    """Lines of words whose frequencies fall as 1/rank, the same each time."""
    import numpy as np

    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = ["".join(rng.choice(letters, rng.integers(2, 10))) for _ in range(20_000)]
    weights = 1 / np.arange(1, len(words) + 1)
    drawn = rng.choice(len(words), size // 6, p=weights / weights.sum())
    lines = (" ".join(words[n] for n in drawn[start : start + 60]) for start in range(0, len(drawn), 60))
    return "\n".join(lines)


def trained_tokenizer(text: str, folder: Path) -> Path:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=16_000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    backend.train_from_iterator(text[: 8 << 20].split("\n"), trainer)
    folder.mkdir()
    backend.save(str(folder / "tokenizer.json"))
    return folder


def throughput(text: str, folder: Path, base: Path, pairs: int) -> dict[str, object]:
    lines = text.split("\n")
    (base / "text.txt").write_text(text, "utf-8")
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    source = [{"path": "text.txt", "document": "line"}]
    config = DataConfig.model_validate({"train": source, "sequence_length": 512, "workers": "auto"})
    size = TextTokenizer.load(folder).vocab_size
    raw, whole, batch = [], [], 4096

    def alone() -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "true"
        for start in range(0, len(lines), batch):
            sum(map(len, backend.encode_batch(lines[start : start + batch], add_special_tokens=False)))

    for number in range(pairs):
        raw.append(seconds(alone))
        cache = base / f"cache-{number}"
        whole.append(
            seconds(
                lambda at=cache: prepare(
                    config, base=base, tokenizer_folder=folder, embedding_rows=size, cache=at, seed=0
                )
            )
        )
    mib = len(text.encode()) / 2**20
    pairs_of = list(zip(raw, whole, strict=True))
    return {
        "mebibytes": round(mib, 1),
        "cores": available_cores(),
        "pairs": pairs,
        "encode_batch_mib_per_s": spread([mib / wall for wall, _ in raw]),
        "prepare_mib_per_s": spread([mib / wall for wall, _ in whole]),
        "ratio": spread([first[0] / second[0] for first, second in pairs_of]),
        "cpu_ratio": spread([first[1] / second[1] for first, second in pairs_of]),
    }


def doubling(text: str, folder: Path, pairs: int) -> dict[str, float]:
    """One document on one line, through the same encoder that workers use."""
    encoder = Encoder(EncoderSpec(TextTokenizer.load(folder).to_json()))
    line = text.replace("\n", " ")
    line = (line * (10_000_000 // len(line) + 1))[:10_000_000]
    half = line[: len(line) // 2]
    encoder([half])
    pairs_of = [(seconds(lambda: encoder([line])), seconds(lambda: encoder([half]))) for _ in range(pairs)]
    return spread([whole[1] / part[1] for whole, part in pairs_of])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, nargs="?")
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--mebibytes", type=int, default=32)
    arguments = parser.parse_args()
    size = arguments.mebibytes << 20
    text = arguments.text.read_text("utf-8") if arguments.text else generated_text(size)
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        folder = arguments.tokenizer or trained_tokenizer(text, base / "tokenizer")
        result = throughput(text, folder, base, arguments.pairs)
        print(json.dumps({**result, "doubling": doubling(text, folder, arguments.pairs)}, indent=2))


if __name__ == "__main__":
    main()
