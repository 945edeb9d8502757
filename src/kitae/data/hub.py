"""A data set of the Hugging Face Hub, through the `datasets` package (extra `hub`)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kitae.data.arrow import BATCH_ROWS, check_column, documents_of
from kitae.data.documents import Document, Tally
from kitae.data.hashing import HashCache
from kitae.errors import DataError
from kitae.recipe.sources import SourceConfig

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass
class HubSource:
    """A split of a Hub data set; it is fetched when it is first needed."""

    config: SourceConfig
    num_bytes: int | None = None
    _loaded: Any = field(default=None, repr=False)

    def identity(self, hashes: HashCache) -> dict[str, Any]:
        """A commit stands for its content; anything else is hashed text by text."""
        config = self.config
        pinned = config.revision is not None and _COMMIT.fullmatch(config.revision)
        content = config.revision if pinned else self._content_hash()
        return {
            "hub": config.hub,
            "name": config.name,
            "split": config.split,
            "field": config.text_field,
            "at": content,
        }

    def describe(self, hashes: HashCache) -> dict[str, Any]:
        """The Hub id, and the commit or content hash it had."""
        return {**self.identity(hashes), "revision": self.config.revision}

    def documents(self, tally: Tally) -> Iterator[Document]:
        """The documents of the split, in its order."""
        for column, first in self._columns():
            for document in documents_of(column, str(self.config.hub), first, tally):
                tally.documents += 1
                yield document

    def check_unchanged(self) -> None:
        """The loaded data set lies in the cache of `datasets` and does not change."""

    def without_effect(self) -> list[str]:
        """`document` is for text files."""
        return ["document"] if "document" in self.config.model_fields_set else []

    def _content_hash(self) -> str:
        digest = hashlib.sha256()
        for column, _ in self._columns():
            for value in column.to_pylist():
                raw = b"" if value is None else value.encode("utf-8", "surrogatepass")
                digest.update(f"{value is None}:{len(raw)}:".encode() + raw)
        return digest.hexdigest()

    def _columns(self) -> Iterator[tuple[Any, int]]:
        if self._loaded is None:
            self._loaded = _load(self.config)
        data, field_name = self._loaded, self.config.text_field
        check_column(data.features.arrow_schema, field_name, str(self.config.hub))
        first = 1
        for table in data.select_columns([field_name]).with_format("arrow").iter(BATCH_ROWS):
            yield table.column(field_name), first
            first += len(table)


def _load(config: SourceConfig) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            f"{config.hub}: reading from the Hub needs an extra: pip install 'kitae[hub]'"
        ) from error
    try:
        return datasets.load_dataset(
            config.hub, config.name, split=config.split, revision=config.revision, streaming=False
        )
    except Exception as error:  # the package raises whatever its builders, fsspec and the network raise
        reason = str(error).strip().splitlines() or [""]
        raise DataError(
            f"{config.hub}: cannot be loaded from the Hub ({type(error).__name__}: {reason[0]}); check the "
            "id, the split and the network, or save it elsewhere with save_to_disk and give its path"
        ) from error
