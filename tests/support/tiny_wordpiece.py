"""A tiny WordPiece tokenizer as a BERT folder has it."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [
    "good",
    "bad",
    "book",
    "film",
    "un",
    "##want",
    "##ed",
    "the",
    "a",
    "very",
    "not",
    "'",
    "t",
    ".",
    ",",
]
VOCABULARY = [
    *SPECIAL,
    *PIECES,
    *"abcdefghijklmnopqrstuvwxyz",
    *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"),
]
IDS = {piece: place for place, piece in enumerate(dict.fromkeys(VOCABULARY))}


def wordpiece_backend(vocabulary: dict[str, int] = IDS) -> Tokenizer:
    """The tokenizer that transformers makes of a BERT vocabulary."""
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [token for token in SPECIAL if token in vocabulary]
    backend.add_special_tokens(special)
    ends = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]") if token in vocabulary]
    if len(ends) == 2:
        backend.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
        )
    return backend


def write_wordpiece(folder: Path, settings: dict[str, object] | None = None) -> Path:
    """tokenizer.json and tokenizer_config.json in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(wordpiece_backend().to_str(), encoding="utf-8")
    content = {"tokenizer_class": "BertTokenizer"} if settings is None else settings
    (folder / "tokenizer_config.json").write_text(json.dumps(content), encoding="utf-8")
    return folder
