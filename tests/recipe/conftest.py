"""A recipe that is right, to be broken in one place."""

from pathlib import Path

import pytest

GOOD = """\
kitae: 1
name: first
model:
  preset: llama-tiny
data:
  tokenizer:
    folder: words
  train:
    - path: a.txt
    - path: b.jsonl
      text_field: body
  heldout:
    fraction: 0.1
training:
  duration: 20 steps
optimizer:
  learning_rate: 1e-4
"""


@pytest.fixture
def good() -> str:
    return GOOD


@pytest.fixture
def write(tmp_path):
    """Writes `recipe.yaml` and returns its path."""

    def _write(text: str = GOOD) -> Path:
        path = tmp_path / "recipe.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return _write
