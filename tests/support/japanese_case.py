"""Folders of a `BertJapaneseTokenizer` over the small vocabularies of tests/data/japanese."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

HOME = Path(__file__).parents[1] / "data/japanese"
SUBWORDS: dict[str, dict[str, Any]] = {
    "wordpiece": {"subword_tokenizer_type": "wordpiece"},
    "wordpiece-lower": {"subword_tokenizer_type": "wordpiece", "do_lower_case": True},
    "character": {"subword_tokenizer_type": "character"},
}


def golden() -> dict[str, Any]:
    """What transformers' own class made of 50 sentences; see make_golden.py beside it."""
    return json.loads((HOME / "golden.json").read_text("utf-8"))


def write_japanese(
    folder: Path, dictionary: str = "ipadic", kind: str = "wordpiece", **settings: Any
) -> Path:
    """vocab.txt and tokenizer_config.json as transformers loads them."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(HOME / f"vocab-{dictionary}.txt", folder / "vocab.txt")
    content = {
        "tokenizer_class": "BertJapaneseTokenizer",
        "word_tokenizer_type": "mecab",
        "mecab_kwargs": {"mecab_dic": dictionary},
        **SUBWORDS[kind],
        **settings,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def linked_dictionary(folder: Path, package: str = "ipadic") -> Path:
    """A folder whose files are those of an installed dictionary."""
    folder.mkdir(parents=True)
    for file in Path(importlib.import_module(package).DICDIR).iterdir():
        (folder / file.name).symlink_to(file)
    return folder
