"""Preparation of text for `causal-lm`: one running stream of tokens, cut into rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kitae.data.build import PackBuilder
from kitae.data.normalise import unicode_version
from kitae.data.pack import FORMAT
from kitae.data.packed import PackedData
from kitae.data.preparation import Advance, Job, tokenising
from kitae.data.sources import Sources
from kitae.data.tokenizer import TextTokenizer
from kitae.recipe.sources import DataConfig

OPTIONS = ("sequence_length", "bos", "eos", "document_mask", "normalisation", "on_bad_line", "remainder")


class Packing:
    """Tokens of whole documents, packed."""

    def options(self, config: DataConfig, sources: Sources) -> dict[str, Any]:
        """How documents become tokens and rows."""
        options = {name: getattr(config, name) for name in OPTIONS}
        return {**options, "unicode": unicode_version(config.normalisation)}

    def key_parts(self, config: DataConfig, sources: Sources, seed: int) -> dict[str, Any]:
        """The format, the options, and the seed when documents are held out by a draw."""
        fraction = config.heldout.fraction if config.heldout else None
        return {
            "format": FORMAT,
            "draw": None if fraction is None else [fraction, seed],
            "options": self.options(config, sources),
        }

    def work(self, config: DataConfig, sources: Sources) -> tuple[int, str]:
        """Tokenising, in as many processes as it is worth."""
        return tokenising(config, sources)

    def load_tokenizer(self, folder: Path, config: DataConfig) -> TextTokenizer:
        """The tokenizer without its post-processor."""
        return TextTokenizer.load(folder)

    def builder(self, job: Job, folder: Path, advance: Advance) -> PackBuilder:
        """Writes packed splits."""
        return PackBuilder(job, folder, advance)

    def open(self, folder: Path, embedding_rows: int) -> PackedData:
        """Any model that knows the ids of the text can read packed data."""
        return PackedData.open(folder)

    def summary(self, name: str, split: dict[str, Any], options: dict[str, Any]) -> str:
        """Documents, tokens and rows."""
        return (
            f"{name}: {split['documents']:,} documents, {split['tokens']:,} tokens, {split['rows']:,} rows "
            f"of {options['sequence_length']}, {split['tokens_left_over']:,} tokens left over"
        )
