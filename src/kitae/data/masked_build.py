"""From sources to rows for masked-language training: sentences of all documents first, then rows of them.

n rows, S positions.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from kitae.data.documents import Document
from kitae.data.masked_counts import masked_counts
from kitae.data.masked_data import MaskedData
from kitae.data.masked_pack import FORMAT, MaskedMeta, MaskedWriter, RawRows
from kitae.data.masking import MOST_POSITIONS, Hiding
from kitae.data.normalise import DOCUMENT_ENDS
from kitae.data.pack import token_dtype
from kitae.data.pairs import Pairs, Piece, Runs
from kitae.data.preparation import Advance, Built, Job, Largest
from kitae.data.reading import Reading
from kitae.data.rows import PADDING_ID
from kitae.data.sentence_encoder import SentenceBatch, SentenceSpec
from kitae.data.sentence_store import SentenceStore, SentenceWriter
from kitae.data.special import check_token
from kitae.data.word_tokenizer import WordTokenizer
from kitae.errors import DataError
from kitae.recipe.masking import MaskingConfig
from kitae.recipe.sources import DataConfig

WRITTEN_AT_ONCE = 2048
SENTENCES = ".sentences"


def masking_of(config: DataConfig) -> MaskingConfig:
    """The recipe's section, or its defaults."""
    return config.masking or MaskingConfig()


def hiding_of(job: Job, *, dynamic: bool) -> Hiding:
    """How tokens are hidden in the rows of a job; raises `DataError` for a tokenizer without a mask token."""
    masking, tokenizer = masking_of(job.config), job.tokenizer
    (mask_id,) = tokenizer.special.need("mask")
    return Hiding(
        probability=masking.probability,
        replace=masking.replace,
        random=masking.random,
        max_predictions=masking.predictions(job.config.sequence_length),
        dynamic=dynamic,
        seed=job.seed,
        vocab_size=tokenizer.vocab_size,
        mask_id=mask_id,
        special_ids=tuple(sorted(tokenizer.special.all)),
    )


@dataclass
class Side:
    """One split while it is read."""

    writer: SentenceWriter
    documents: int = 0
    num_bytes: int = 0
    num_chars: int = 0
    changed: int = 0
    cut: int = 0
    unknown: int = 0

    def add(self, batch: SentenceBatch, unknown: int | None) -> None:
        """Append the documents of a batch, none of them empty."""
        self.writer.append(batch)
        self.documents += len(batch.sentences)
        self.num_bytes += int(batch.num_bytes.sum())
        self.num_chars += int(batch.num_chars.sum())
        self.changed += int(batch.changed.sum())
        self.cut += int(batch.cut.sum())
        self.unknown += int((batch.ids == unknown).sum())


class MaskedBuilder:
    """Writes the splits of a job below a folder."""

    def __init__(self, job: Job, folder: Path, advance: Advance) -> None:
        self._job = job
        self._folder = folder
        self._masking = masking_of(job.config)
        self._size = job.config.sequence_length
        self._rows: type[Runs] = Pairs if self._masking.next_sentence else Runs
        room = self._size - self._rows.framing
        if room < 2 or self._size >= MOST_POSITIONS:
            raise DataError(f"data.sequence_length: {self._size} is no length for masked-lm; give 5 to 65535")
        self._spec = SentenceSpec(
            job.tokenizer,
            job.config.normalisation,
            self._masking.sentences,
            self._masking.whole_word,
            longest=room,
            piece=room // 2 if self._masking.next_sentence else room,
        )
        self._framing = job.tokenizer.special.need("cls", "sep", "pad", "mask")
        for token in self._framing:
            self._check(token, "a special token that each row needs")
        self._sides: dict[str, Side] = {}
        self._writers: list[MaskedWriter] = []
        self._reading = Reading[SentenceBatch](job, advance, self._add)
        self._largest = Largest()

    def build(self) -> Built:
        """Read, encode, split and write; raises `DataError` when a split comes out empty."""
        dtype = token_dtype(self._job.tokenizer.vocab_size)
        kept = self._folder / SENTENCES
        try:
            for name in self._reading.names:
                self._sides[name] = Side(SentenceWriter(kept / name, dtype))
            self._reading.run(self._spec, self._received)
            self._reading.check_full({name: side.documents for name, side in self._sides.items()})
            splits = {name: self._write(name, side) for name, side in self._sides.items()}
        except BaseException:
            self._abandon()
            raise
        shutil.rmtree(kept)
        return Built(
            intakes=self._reading.intakes,
            splits=splits,
            largest=self._largest,
            duplicates=self._reading.duplicates,
            tokenizer=described(self._job.tokenizer),
            notes={"document_ends": DOCUMENT_ENDS},
            warnings=warnings(splits),
        )

    def _received(self, documents: list[Document], batch: SentenceBatch) -> SentenceBatch:
        """Note the largest id; raises `DataError` for one that the model does not know."""
        if len(batch.ids) and (largest := int(batch.ids.max())) > self._largest.id:
            sentence = np.searchsorted(np.cumsum(batch.lengths), batch.ids.argmax(), side="right")
            document = int(np.searchsorted(np.cumsum(batch.sentences), sentence, side="right"))
            self._largest = Largest(largest, documents[document].where)
            self._check(largest, documents[document].where)
        return batch

    def _check(self, token: int, where: str) -> None:
        check_token(token, self._job.tokenizer.token(token), where, self._job.embedding_rows)

    def _add(self, name: str, batch: SentenceBatch) -> None:
        self._sides[name].add(batch, self._job.tokenizer.special.unk)

    def _write(self, name: str, side: Side) -> dict[str, Any]:
        """Make the rows of a split; what the card says of it."""
        store = side.writer.close()
        self._check_pairs(name, store)
        rows = self._rows(store, self._size, self._masking.short_sequence_probability, self._job.seed, name)
        hiding = hiding_of(self._job, dynamic=self._masking.dynamic and name == "train")
        dtype = token_dtype(self._job.tokenizer.vocab_size)
        writer = MaskedWriter(
            self._folder / name, MaskedMeta(FORMAT, 0, self._size, dtype, hiding.max_predictions, hiding)
        )
        self._writers.append(writer)
        pieces = rows.pieces()
        while some := list(islice(pieces, WRITTEN_AT_ONCE)):
            writer.append(self._framed(store, some))
        writer.close()
        counts, tokens = rows.counts, side.writer.tokens
        assert counts.own + counts.cut_off == tokens, "tokens of documents and of rows differ"
        pairs = writer.rows if self._masking.next_sentence else 0
        return {
            "documents": side.documents,
            "bytes": side.num_bytes,
            "chars": side.num_chars,
            "documents_changed_by_normalisation": side.changed,
            "sentences": side.writer.sentences,
            "sentences_cut": side.cut,
            "tokens": tokens,
            "unknown_tokens": side.unknown,
            "tokens_cut_off": counts.cut_off,
            "tokens_borrowed": counts.borrowed,
            "rows": writer.rows,
            "pairs": pairs,
            "random_pairs": counts.random_pairs,
            "padding": writer.rows * (self._size - rows.framing) - counts.own - counts.borrowed,
            "masked": masked_counts(MaskedData.open(self._folder / name)),
        }

    def _check_pairs(self, name: str, store: SentenceStore) -> None:
        """Raise `DataError` where there can be no pairs of both kinds."""
        if not self._masking.next_sentence:
            return
        lacks = "one document" if len(store) < 2 else "no document of several sentences"
        if len(store) < 2 or not store.several():
            raise DataError(
                f"data.masking.next_sentence: the {name} text has {lacks}: there are no pairs of both kinds; "
                "set it to false, or say what a document is (data.train.*.document)"
            )

    def _framed(self, store: SentenceStore, pieces: list[Piece]) -> RawRows:
        """Rows of these pieces with the special tokens around them."""
        first, first_end, second, second_end, following = np.array(pieces, np.int64).T[:, :, None]
        cls_id, sep_id, *_ = self._framing
        place = np.arange(self._size)
        end, paired = first_end - first + 1, second_end > second
        last = np.where(paired, end + 1 + second_end - second, end)
        framing = (place == 0) | (place == end) | (place == last)
        text = (place < last) & ~framing
        source = np.where(text, np.where(place < end, first + place - 1, second + place - end - 1), 0)
        ids = np.where(text, store.ids[source], PADDING_ID)
        ids[framing] = sep_id
        ids[:, 0] = cls_id
        # What is behind a special token begins a word, also where a word was cut.
        starts = (text & store.starts[source]) | framing
        starts[:, 1:] |= framing[:, :-1] & text[:, 1:]
        shape = np.concatenate([last + 1, np.where(paired, end + 1, last + 1), following], axis=1)
        return RawRows(ids, shape, starts)

    def _abandon(self) -> None:
        for side in self._sides.values():
            side.writer.abandon()
        for writer in self._writers:
            writer.abandon()

    def needed_bytes(self) -> int:
        """About how much the rows, and the sentences while they are made, take in all."""
        written = sum(writer.written_bytes for writer in self._writers)
        tokens = sum(side.writer.tokens for side in self._sides.values())
        item = np.dtype(token_dtype(self._job.tokenizer.vocab_size)).itemsize
        return written + self._reading.scaled(2 * tokens * (item + 1))


def described(tokenizer: WordTokenizer) -> dict[str, Any]:
    """What the card says of a tokenizer: its special tokens, and the dictionary if one cuts its words."""
    special = tokenizer.special
    roles = {role: getattr(special, role) for role in ("cls", "sep", "pad", "mask", "unk")}
    named = {role: [token, tokenizer.token(token)] for role, token in roles.items() if token is not None}
    dictionary = getattr(tokenizer, "dictionary", None)
    cutter = {} if dictionary is None else {"dictionary": dictionary.name}
    return {"special_tokens": named, **cutter}


def warnings(splits: dict[str, dict[str, Any]]) -> list[str]:
    """What the counts of the splits give reason to doubt."""
    found = []
    for name, split in splits.items():
        if split["unknown_tokens"] > 0.02 * split["tokens"]:
            found.append(
                f"{split['unknown_tokens'] / split['tokens']:.1%} of the tokens of {name} are unknown: the "
                "vocabulary is of another language, or was made with another dictionary"
            )
        if abs(split["random_pairs"] - split["pairs"] / 2) > 0.05 * split["pairs"]:
            found.append(
                f"{split['random_pairs']:,} of {split['pairs']:,} pairs of {name} are random ones, not half: "
                "many documents are too short to have a next sentence"
            )
        if split["tokens_cut_off"] > 0.2 * split["tokens"]:
            found.append(
                f"{split['tokens_cut_off'] / split['tokens']:.1%} of the tokens of {name} were cut off: many "
                "sentences are as long as a row; raise data.sequence_length, or see data.masking.sentences"
            )
    return found
