"""What the data card says of labelled texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from kitae.data.labelled_encode import COUNTS
from kitae.data.labelled_pack import Chosen

SHOWN = 10
"""Classes that a warning names."""
MANY_UNKNOWN = 0.05
"""Share of unknown tokens above which the vocabulary hardly belongs to the text."""


def of_tokenizer(tokenizer: Any) -> dict[str, Any]:
    """Which dictionary cut the words, where one did."""
    found = getattr(tokenizer, "dictionary", None)
    return {} if found is None else {"dictionary": found.name, "dictionary_version": found.identity}


def split_counts(chosen: Chosen, names: list[str], sequence_length: int) -> dict[str, Any]:
    """A split of the card."""
    rows, tokens = len(chosen.lengths), int(chosen.lengths.sum())
    of_classes = np.bincount(chosen.labels, minlength=len(names)).tolist()
    return {
        "documents": rows,
        "rows": rows,
        "labels": dict(zip(names, of_classes, strict=True)),
        **dict(zip(COUNTS, chosen.counts.sum(axis=0).tolist(), strict=True)),
        "tokens": tokens,
        "padding": rows * sequence_length - tokens,
    }


def doubts(names: list[str], splits: dict[str, dict[str, Any]]) -> list[str]:
    """What the counts of the splits give reason to doubt."""
    found = []
    for split, counts in splits.items():
        if absent := [name for name in names if not counts["labels"][name]]:
            found.append(_absent(absent, split))
    for split, counts in splits.items():
        share = counts["unknown_tokens"] / max(1, counts["tokens"])
        if share > MANY_UNKNOWN:
            found.append(
                f"{share:.1%} of the tokens of {split} are unknown: the vocabulary is of another language, "
                "or was made with another dictionary (kitae doctor looks into it)"
            )
        if counts["special_tokens_in_text"]:
            found.append(
                f"special tokens stand {counts['special_tokens_in_text']} times inside the texts of {split}"
            )
    return found


def _absent(names: list[str], split: str) -> str:
    if len(names) == 1:
        return f"the class {names[0]} has no text in {split}"
    more = ", .." if len(names) > SHOWN else ""
    return f"{len(names)} classes have no text in {split}: {', '.join(names[:SHOWN])}{more}"
