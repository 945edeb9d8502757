"""How fast Japanese is cut, against transformers' BertJapaneseTokenizer on the same sentences, one core each.

    OMP_NUM_THREADS=1 python benchmarks/cut_japanese.py [--rounds 7]

Printed as JSON for each dictionary: sentences a second of CPU time, and how many times as fast kitae is, in
turns: `ids` of `encode_batch` against the tokenizer's own ids, and `rows` of a classifier (128 positions)
against the tokenizer with truncation and padding. `mecab` is MeCab alone. The sentences are those of the
demo text; both sides give the same ids, which is checked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from transformers import BertJapaneseTokenizer

from kitae.data.japanese import JapaneseTokenizer, open_mecab
from kitae.data.labelled_encode import LabelledSpec

ROOT = Path(__file__).parents[1]
LENGTH = 128


def sentences() -> list[str]:
    files = sorted((ROOT / "recipes/demo/text/train").glob("*.txt"))
    parts = [part.strip() for file in files for part in file.read_text("utf-8").split("。")]
    return [f"{part}。" for part in parts if part]


def cpu_seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def compared(
    ours: Callable[[], object], theirs: Callable[[], object], rounds: int
) -> tuple[float, list[float]]:
    """Our best seconds, and the ratio of theirs to ours in each round."""
    pairs = [(cpu_seconds(ours), cpu_seconds(theirs)) for _ in range(rounds)]
    return min(one for one, _ in pairs), [other / one for one, other in pairs]


def cut(mecab: Callable[[str], list[object]], texts: list[str]) -> None:
    for text in texts:
        mecab(text)


def measure(dictionary: str, texts: list[str], rounds: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as name:
        stock = BertJapaneseTokenizer(
            str(ROOT / f"tests/data/japanese/vocab-{dictionary}.txt"),
            word_tokenizer_type="mecab",
            mecab_kwargs={"mecab_dic": dictionary},
        )
        stock.save_pretrained(name)
        tokenizer = JapaneseTokenizer.load(Path(name))
    encode = LabelledSpec(tokenizer, "none", LENGTH).open()
    contents = [(text, None) for text in texts]
    mecab = open_mecab(tokenizer.dictionary)

    def stock_rows() -> object:
        return stock(texts, truncation=True, max_length=LENGTH, padding="max_length")

    expected = stock(texts, add_special_tokens=False)["input_ids"]
    assert [ids.tolist() for ids in tokenizer.encode_batch(texts)] == expected
    sides: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "ids": (lambda: tokenizer.encode_batch(texts), lambda: stock(texts, add_special_tokens=False)),
        "rows": (lambda: encode(contents), stock_rows),
    }
    found: dict[str, object] = {}
    for side, (ours, theirs) in sides.items():
        seconds, ratios = compared(ours, theirs, rounds)
        found[side] = {
            "sentences_per_s": round(len(texts) / seconds),
            "times_as_fast": {
                "median": round(statistics.median(ratios), 2),
                "min": round(min(ratios), 2),
                "max": round(max(ratios), 2),
            },
        }
    alone = min(cpu_seconds(lambda: cut(mecab, texts)) for _ in range(rounds))
    return {**found, "mecab": {"sentences_per_s": round(len(texts) / alone)}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    texts = sentences()
    found = {dictionary: measure(dictionary, texts, rounds) for dictionary in ("unidic_lite", "ipadic")}
    print(json.dumps({"sentences": len(texts), "characters": sum(map(len, texts)), **found}, indent=2))


if __name__ == "__main__":
    main()
