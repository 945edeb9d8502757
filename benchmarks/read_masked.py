"""How fast rows are read and masked, against transformers' collator on the same rows, one core each.

    OMP_NUM_THREADS=1 python benchmarks/read_masked.py [--rounds 9]

Printed as JSON, for rows of 128 positions with 20 predictions and of 512 with 80: rows a second of CPU time
of `MaskedData.read` (from memory-mapped files, whole words) and of `DataCollatorForLanguageModeling` (rows of
lists in memory, single tokens), in turns, and how many times as fast the first one is.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

from kitae.data.examples import Sample
from kitae.data.masked_data import MaskedData
from kitae.data.masked_pack import FORMAT, MaskedMeta, MaskedWriter, RawRows
from kitae.data.masking import Hiding

VOCAB = 30_522
SPECIAL = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
ROWS, BATCH = 8192, 1024


def some_rows(size: int) -> RawRows:
    """Full rows of pairs, three of four tokens the beginning of a word."""
    rng = np.random.default_rng(0)
    ids, starts = rng.integers(5, VOCAB, (ROWS, size)), rng.random((ROWS, size)) < 0.75
    middle = size // 2
    ids[:, [0, middle, -1]] = [SPECIAL["[CLS]"], SPECIAL["[SEP]"], SPECIAL["[SEP]"]]
    starts[:, [0, 1, middle, middle + 1, -1]] = True
    shape = np.stack([np.full(ROWS, size), np.full(ROWS, middle + 1), rng.integers(0, 2, ROWS)], axis=1)
    return RawRows(ids, shape, starts)


def written(folder: Path, raw: RawRows, most: int) -> MaskedData:
    hiding = Hiding(0.15, 0.8, 0.1, most, True, 0, VOCAB, SPECIAL["[MASK]"], tuple(SPECIAL.values()))
    writer = MaskedWriter(folder, MaskedMeta(FORMAT, 0, raw.ids.shape[1], "uint16", most, hiding))
    writer.append(raw)
    writer.close()
    return MaskedData.open(folder)


def collator() -> DataCollatorForLanguageModeling:
    words = {**SPECIAL, **{f"w{number}": number for number in range(len(SPECIAL), VOCAB)}}
    backend = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    roles = {f"{name.strip('[]').lower()}_token": name for name in SPECIAL}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **roles)
    return DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15, return_tensors="np")


def rate(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return BATCH / (time.process_time() - begin)


def measured(size: int, most: int, rounds: int, base: Path) -> dict[str, float]:
    raw = some_rows(size)
    data, collate = written(base / str(size), raw, most), collator()
    order = np.random.default_rng(1).permutation(ROWS)[:BATCH].tolist()
    samples = [Sample(number, 1) for number in order]
    items = [{"input_ids": raw.ids[number].tolist()} for number in order]
    ours, theirs = [], []
    for _ in range(rounds + 1):
        ours.append(rate(lambda: data.read(samples)))
        theirs.append(rate(lambda: collate([dict(item) for item in items])))
    ratios = [first / second for first, second in zip(ours[1:], theirs[1:], strict=True)]
    return {
        "read_rows_per_cpu_s": round(statistics.median(ours[1:])),
        "collator_rows_per_cpu_s": round(statistics.median(theirs[1:])),
        "ratio": round(statistics.median(ratios), 1),
        "ratio_min": round(min(ratios), 1),
        "ratio_max": round(max(ratios), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as base:
        found = {str(size): measured(size, most, rounds, Path(base)) for size, most in ((128, 20), (512, 80))}
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
