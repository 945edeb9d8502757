"""Preparation of text for `masked-lm`: rows of sentences, of which words are hidden when they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kitae.data.hdf5_build import ShardBuilder
from kitae.data.masked_build import MaskedBuilder
from kitae.data.masked_data import MaskedData
from kitae.data.masked_pack import FORMAT
from kitae.data.masked_settings import masking_of
from kitae.data.normalise import unicode_version
from kitae.data.preparation import Advance, Builder, Job, tokenising
from kitae.data.sources import FileSource, Sources
from kitae.data.word_tokenizer import WordTokenizer, load_tokenizer
from kitae.errors import DataError
from kitae.recipe.sources import DataConfig

SENTENCE_RULES = 1
"""Raised when the same text is split into other sentences, or its sentences go into other rows."""


def are_shards(sources: Sources) -> bool:
    """Whether the sources are HDF5 shards, not text; raises `DataError` where they are both."""
    kinds = {
        kind
        for source in (*sources.train, *sources.heldout)
        for kind in ({file.format for file in source.files} if isinstance(source, FileSource) else {"hub"})
    }
    if "hdf5" in kinds and len(kinds) > 1:
        raise DataError(
            "data: some sources are HDF5 shards of rows and others are text; give one kind "
            "(format: hdf5 picks the shards of a folder)"
        )
    return kinds == {"hdf5"}


class MaskedText:
    """Rows of sentences with words to predict."""

    def options(self, config: DataConfig, sources: Sources) -> dict[str, Any]:
        """The section `masking`, and how documents become tokens; of shards, only what their rows must be."""
        masking = masking_of(config)
        most = masking.predictions(config.sequence_length)
        common = {"sequence_length": config.sequence_length, "on_bad_line": config.on_bad_line}
        if are_shards(sources):
            return {**common, "max_predictions": most, "next_sentence": masking.next_sentence}
        return {
            **common,
            "normalisation": config.normalisation,
            "unicode": unicode_version(config.normalisation),
            **masking.model_dump(),
            "max_predictions": most,
        }

    def key_parts(self, config: DataConfig, sources: Sources, seed: int) -> dict[str, Any]:
        """Everything that a row depends on, masks included: the folder can be read without the recipe."""
        fraction = config.heldout.fraction if config.heldout else None
        drawn = fraction is not None or not are_shards(sources)
        return {
            "objective": "masked-lm",
            "format": [FORMAT, SENTENCE_RULES],
            "draw": [fraction, seed] if drawn else None,
            "options": self.options(config, sources),
        }

    def work(self, config: DataConfig, sources: Sources) -> tuple[int, str]:
        """Tokenising, in as many processes as it is worth; shards are unpacked by this one."""
        return (0, "unpacking shards") if are_shards(sources) else tokenising(config, sources)

    def load_tokenizer(self, folder: Path, config: DataConfig) -> WordTokenizer:
        """The tokenizer, with the dictionary that the recipe names."""
        return load_tokenizer(folder, config.dictionary)

    def builder(self, job: Job, folder: Path, advance: Advance) -> Builder:
        """Writes rows of sentences, or those of shards."""
        return (ShardBuilder if are_shards(job.sources) else MaskedBuilder)(job, folder, advance)

    def open(self, folder: Path, embedding_rows: int) -> MaskedData:
        """A split; raises `DataError` where a random token could be one that the model does not know."""
        data = MaskedData.open(folder)
        hiding = data.meta.hiding
        if hiding is not None and hiding.random and hiding.vocab_size > embedding_rows:
            raise DataError(
                f"the tokenizer knows ids up to {hiding.vocab_size - 1}, the model {embedding_rows} rows: "
                "a random token may be any of them; give the model a vocabulary as large, or set "
                "data.masking.random: 0"
            )
        return data

    def summary(self, name: str, split: dict[str, Any], options: dict[str, Any]) -> str:
        """Documents, tokens, rows and what of them is hidden."""
        masked = split["masked"]
        return (
            f"{name}: {split['documents']:,} documents, {split['tokens']:,} tokens, {split['rows']:,} rows "
            f"of {options['sequence_length']}, {split['random_pairs']:,} of {split['pairs']:,} pairs random, "
            f"{masked['share_of_tokens']:.1%} of the tokens hidden"
        )
