"""Documents become ids, a batch at a time, in one process (`workers` spreads batches over many)."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from kitae.data.documents import Document
from kitae.data.normalise import clean
from kitae.data.tokenizer import encode_ids

BATCH_CHARS = 1 << 18
BATCH_DOCUMENTS = 2048

AnyDocument = TypeVar("AnyDocument", bound=Document)


@dataclass(frozen=True)
class EncoderSpec:
    """All that the ids of a document depend on."""

    tokenizer: str
    """The tokenizer as JSON."""
    normalisation: str = "none"
    bos: tuple[int, ...] = ()
    """Ids put before each document."""
    eos: tuple[int, ...] = ()
    """Ids put behind each document."""

    def open(self) -> Encoder:
        """What encodes, in the process that calls this."""
        return Encoder(self)


@dataclass(frozen=True)
class Batch:
    """Encoded documents, one after the other; N documents, T tokens. Empty documents have no tokens."""

    ids: NDArray[np.uint32]
    """[T], begin and end tokens included."""
    lengths: NDArray[np.int64]
    """[N] tokens of each document; 0 for an empty one."""
    num_bytes: NDArray[np.int64]
    """[N] bytes of each document's text as UTF-8."""
    num_chars: NDArray[np.int64]
    """[N] characters of each document's text."""
    changed: NDArray[np.bool_]
    """[N] whether normalisation changed the document."""
    digests: list[bytes]
    """[N] hash of each document's text: equal texts, equal hashes."""

    @property
    def full(self) -> NDArray[np.bool_]:
        """[N] whether each document has tokens."""
        return self.lengths > 0

    def select(self, chosen: NDArray[np.bool_]) -> Batch:
        """The documents for which `chosen` [N] is true."""
        return Batch(
            self.ids[np.repeat(chosen, self.lengths)],
            self.lengths[chosen],
            self.num_bytes[chosen],
            self.num_chars[chosen],
            self.changed[chosen],
            list(itertools.compress(self.digests, chosen)),
        )


class Encoder:
    """Turns documents into batches of ids in the process that it lives in."""

    def __init__(self, spec: EncoderSpec) -> None:
        self._spec = spec
        self._backend = Tokenizer.from_str(spec.tokenizer)

    def __call__(self, texts: Sequence[str]) -> Batch:
        """Encode; texts that are blank, or that the tokenizer finds nothing in, come out empty."""
        cleaned = [clean(text, self._spec.normalisation) for text in texts]
        # "" for blank ones: a row of white space or bare begin and end tokens teaches nothing.
        texts = [text if text.strip() else "" for text, _ in cleaned]
        raw = [text.encode("utf-8") for text in texts]
        pieces = [self._framed(ids) for ids in encode_ids(self._backend, texts)]
        return Batch(
            ids=np.concatenate(pieces) if pieces else np.zeros(0, np.uint32),
            lengths=np.array([len(piece) for piece in pieces], np.int64),
            num_bytes=np.array([len(text) for text in raw], np.int64),
            num_chars=np.array([len(text) for text in texts], np.int64),
            changed=np.array([changed for _, changed in cleaned], np.bool_),
            digests=[hashlib.blake2b(text, digest_size=16).digest() for text in raw],
        )

    def _framed(self, ids: NDArray[np.uint32]) -> NDArray[np.uint32]:
        if not len(ids):
            return ids
        return np.concatenate([np.array(self._spec.bos, np.uint32), ids, np.array(self._spec.eos, np.uint32)])


def batched(documents: Iterable[AnyDocument]) -> Iterator[list[AnyDocument]]:
    """Batches bounded in characters and number, in order; a longer document is a batch of its own."""
    batch: list[AnyDocument] = []
    chars = 0
    for document in documents:
        if batch and (chars + len(document.text) > BATCH_CHARS or len(batch) == BATCH_DOCUMENTS):
            yield batch
            batch, chars = [], 0
        batch.append(document)
        chars += len(document.text)
    if batch:
        yield batch
