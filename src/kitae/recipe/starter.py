"""The commented recipe that `kitae new` writes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Literal

What = Literal["continue", "pretrain", "classify", "masked"]
WHATS: dict[What, str] = {
    "continue": "go on training a language model on a text",
    "pretrain": "train a small language model from nothing",
    "classify": "teach a BERT the labels of texts",
    "masked": "train a BERT from nothing to fill gaps",
}
"""What can be done, in the words of the first question."""
OBJECTIVES: dict[What, str] = {
    "continue": "causal-lm",
    "pretrain": "causal-lm",
    "classify": "classification",
    "masked": "masked-lm",
}
_RATES: dict[What, str] = {
    "continue": "3.0e-4",
    "pretrain": "1.0e-3",
    "classify": "5.0e-5",
    "masked": "1.0e-3",
}


@dataclass(frozen=True)
class Wish:
    """What the recipe is to be for."""

    name: str
    what: What
    model: tuple[str, str]
    """Key of the section `model` and its value: folder, hub, named or preset."""
    path: str
    """The text."""
    text_field: str | None = None
    """Of records: where the text is."""
    label_field: str | None = None
    """Of records: where the label is."""
    labels: tuple[str, ...] = ()
    """The labels that were seen, sorted; each becomes a class of its name."""
    document: str | None = None
    """Of text files: what one document is."""
    tokenizer: dict[str, str] = field(default_factory=dict)
    """Where the tokenizer comes from; empty: it is the model's own."""
    sequence_length: int = 512
    duration: str = "200 steps"
    recompute: str = "none"


def starter_recipe(wish: Wish) -> str:
    """The file's text."""
    return f"""\
# {WHATS[wish.what].capitalize()}.
# Every key is in docs/recipe.md; `kitae explain` shows every value, and where it is from.
kitae: 1
name: {_text(wish.name)}
seed: 1
objective: {OBJECTIVES[wish.what]}

model:
  # folder, hub (a Hugging Face id), named (comes in a package), run, or preset (random weights).
  {wish.model[0]}: {_text(wish.model[1])}

{_data(wish)}
{_rest(wish)}"""


def _data(wish: Wish) -> str:
    lines = ["data:", "  train:", f"    - path: {_text(wish.path)}"]
    if wish.text_field is not None:
        lines.append(f"      text_field: {_text(wish.text_field)}")
    if wish.document is not None:
        lines.append("      # file, line, or paragraph: a block between blank lines.")
        lines.append(f"      document: {wish.document}")
    lines += [
        "  # A share of the documents that is not trained on tells whether anything was learned.",
        "  heldout:",
    ]
    lines.append("    fraction: 0.05")
    if wish.tokenizer:
        lines += ["  tokenizer:", *(f"    {key}: {_text(value)}" for key, value in wish.tokenizer.items())]
    lines += ["  # Tokens in a row.", f"  sequence_length: {wish.sequence_length}"]
    if wish.label_field is not None:
        lines += ["  labels:", f"    field: {_text(wish.label_field)}"]
        lines.append(
            "    # Which label is of which class: {1: bad, 2: bad, 5: good}; rows with others are left out."
        )
        known = {label: f"class-{label}" if label.isdigit() else label for label in wish.labels}
        lines.append(f"    values: {json.dumps(known, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def _rest(wish: Wish) -> str:
    return f"""\
optimizer:
  learning_rate: {_RATES[wish.what]}
schedule:
  kind: cosine

training:
  # Such as 500 steps, 2M tokens or 3 epochs. Planned to be some minutes where this was written.
  duration: {wish.duration}
  global_batch_size: 8
  # More of it saves memory: none, selective, full.
  recompute: {wish.recompute}

evaluation:
  # Rows of held-out text that are looked at before the first update and after the last.
  max_rows: 64
checkpoint:
  every: never
"""


_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")


def _text(value: str) -> str:
    """A value of YAML, in quotes where it could be read as something else."""
    plain = _PLAIN.fullmatch(value) and value.lower() not in (
        "yes",
        "no",
        "on",
        "off",
        "true",
        "false",
        "null",
    )
    return value if plain else json.dumps(value, ensure_ascii=False)
