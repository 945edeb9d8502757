"""The small text in two languages: an English novel, and Japanese sentences that are made up.

`TEXT.md` says where the novel comes from.
"""

from __future__ import annotations

import random
from pathlib import Path

from kitae.recipe.small_inputs import Language
from kitae.small.reviews import sentences

PARTS = ("train", "heldout")
_SEEDS = {"train": 1, "heldout": 2}
_JAPANESE_PARAGRAPHS = {"train": 400, "heldout": 60}
_SENTENCES = 4


def paragraphs(language: Language, part: str) -> list[str]:
    """The text of a part (`train` or `heldout`), by paragraphs."""
    if language == "english":
        path = Path(__file__).with_name(f"english-{part}.txt")
        return path.read_text("utf-8").strip().split("\n\n")
    draw = random.Random(_SEEDS[part])
    known = [sentence for kind in (0, 1) for sentence in sentences("japanese", kind, part)]
    return ["".join(draw.sample(known, _SENTENCES)) for _ in range(_JAPANESE_PARAGRAPHS[part])]


def prose(language: Language, part: str) -> bytes:
    """The text as a file has it, with blank lines between paragraphs."""
    return ("\n\n".join(paragraphs(language, part)) + "\n").encode()
