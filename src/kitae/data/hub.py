"""A data set of the Hugging Face Hub, through the `datasets` package (extra `hub`)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kitae.data.arrow import BATCH_ROWS, check_columns, documents_of, wanted_columns
from kitae.data.documents import Document, Fields, Tally
from kitae.data.hashing import HashCache
from kitae.errors import DataError
from kitae.recipe.sources import SourceConfig

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass
class HubSource:
    """A split of a Hub data set; it is fetched when it is first needed."""

    config: SourceConfig
    fields: Fields = ()
    num_bytes: int | None = None
    _loaded: Any = field(default=None, repr=False)

    def identity(self, hashes: HashCache) -> dict[str, Any]:
        """A commit stands for its content; anything else is hashed text by text."""
        config = self.config
        pinned = config.revision is not None and _COMMIT.fullmatch(config.revision)
        content = config.revision if pinned else self._content_hash()
        more = {"fields": [one.name for one in self.fields]} if self.fields else {}
        return {
            "hub": config.hub,
            "name": config.name,
            "split": config.split,
            "field": config.text_field,
            **more,
            "at": content,
        }

    def describe(self, hashes: HashCache) -> dict[str, Any]:
        """The Hub id, and the commit or content hash it had."""
        return {**self.identity(hashes), "revision": self.config.revision}

    def documents(self, tally: Tally) -> Iterator[Document]:
        """The documents of the split, in its order."""
        config = self.config
        for table, first in self._tables():
            for document in documents_of(table, config, self.fields, str(config.hub), first, tally):
                tally.documents += 1
                yield document

    def check_unchanged(self) -> None:
        """The loaded data set lies in the cache of `datasets` and does not change."""

    def without_effect(self) -> list[str]:
        """`document` is for text files."""
        return ["document"] if "document" in self.config.model_fields_set else []

    def _content_hash(self) -> str:
        digest = hashlib.sha256()
        names = wanted_columns(self.config, self.fields)
        for table, _ in self._tables():
            for values in zip(*(table.column(name).to_pylist() for name in names), strict=True):
                for value in values:
                    text = value if isinstance(value, str | None) else repr(value)
                    raw = b"" if text is None else text.encode("utf-8", "surrogatepass")
                    digest.update(f"{text is None}:{len(raw)}:".encode() + raw)
        return digest.hexdigest()

    def _tables(self) -> Iterator[tuple[Any, int]]:
        if self._loaded is None:
            self._loaded = _load(self.config)
        data, names = self._loaded, wanted_columns(self.config, self.fields)
        check_columns(data.features.arrow_schema, self.config, self.fields, str(self.config.hub))
        first = 1
        for table in data.select_columns(names).with_format("arrow").iter(BATCH_ROWS):
            yield table, first
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
