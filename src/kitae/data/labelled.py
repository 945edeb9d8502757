"""Preparation of labelled texts for `classification`: every text is a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kitae.data.labelled_build import LabelledBuilder
from kitae.data.labelled_data import LabelledData
from kitae.data.labelled_pack import FORMAT
from kitae.data.normalise import unicode_version
from kitae.data.preparation import Advance, Job, tokenising
from kitae.data.sources import Sources
from kitae.data.word_tokenizer import WordTokenizer, load_tokenizer
from kitae.recipe.sources import DataConfig

OPTIONS = ("sequence_length", "normalisation", "on_bad_line")


class Labelling:
    """Texts and their labels."""

    def options(self, config: DataConfig, sources: Sources) -> dict[str, Any]:
        """How texts become rows, and which of them count."""
        assert config.labels is not None, "checked with the recipe"
        options = {name: getattr(config, name) for name in OPTIONS}
        return {
            **options,
            "unicode": unicode_version(config.normalisation),
            "labels": config.labels.model_dump(mode="json"),
        }

    def key_parts(self, config: DataConfig, sources: Sources, seed: int) -> dict[str, Any]:
        """The format, the options, and the seed when something is drawn."""
        assert config.labels is not None, "checked with the recipe"
        fraction = config.heldout.fraction if config.heldout else None
        draws = (fraction, config.labels.sample, config.labels.sample_heldout)
        return {
            "labelled_format": FORMAT,
            "draw": None if draws == (None, None, None) else [fraction, seed],
            "options": self.options(config, sources),
        }

    def work(self, config: DataConfig, sources: Sources) -> tuple[int, str]:
        """Tokenising, in as many processes as it is worth."""
        return tokenising(config, sources)

    def load_tokenizer(self, folder: Path, config: DataConfig) -> WordTokenizer:
        """The tokenizer with its special tokens and, for Japanese, its dictionary."""
        return load_tokenizer(folder, config.dictionary)

    def builder(self, job: Job, folder: Path, advance: Advance) -> LabelledBuilder:
        """Writes splits of labelled texts."""
        return LabelledBuilder(job, folder, advance)

    def open(self, folder: Path, embedding_rows: int) -> LabelledData:
        """Any model that knows the ids of the texts can read them."""
        return LabelledData.open(folder)

    def summary(self, name: str, split: dict[str, Any], options: dict[str, Any]) -> str:
        """Texts, how many of each class, and how many were cut."""
        texts = split["documents"]
        balance = ", ".join(
            f"{label} {count:,} ({count / max(1, texts):.1%})" for label, count in split["labels"].items()
        )
        cut = f"; {split['documents_cut']:,} cut at {options['sequence_length']} tokens"
        return f"{name}: {texts:,} texts ({balance})" + (cut if split["documents_cut"] else "")


def class_names(card: dict[str, Any]) -> list[str]:
    """Names of the classes by number, from the card of prepared data."""
    return list(card["labels"]["classes"])
