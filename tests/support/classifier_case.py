"""Folders of small classifiers, as stock transformers saves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from japanese_case import write_japanese
from tiny_encoders import reference
from tiny_wordpiece import write_wordpiece

LABELS = ["negative", "positive"]


def write_classifier(folder: Path, case: str = "classification", **changes: Any) -> Path:
    """A random English BERT of two labels with its tokenizer."""
    names = {str(number): name for number, name in enumerate(LABELS)}
    fields = {"num_labels": 2, "id2label": names} if case == "classification" else {}
    reference(case, **{**fields, **changes}).save_pretrained(folder)
    return write_wordpiece(folder, {"tokenizer_class": "BertTokenizer", "model_max_length": 160})


def write_japanese_classifier(folder: Path) -> Path:
    """A random Japanese BERT of two labels with its tokenizer."""
    names = {str(number): name for number, name in enumerate(LABELS)}
    reference("classification", num_labels=2, id2label=names, vocab_size=3072).save_pretrained(folder)
    return write_japanese(folder, "ipadic")


def write_texts(path: Path, texts: list[str]) -> Path:
    """JSON lines with a field `text`."""
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path
