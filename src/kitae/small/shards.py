"""The small text as HDF5 shards of masked rows, as NVIDIA's and AWS's BERT examples make them."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kitae.errors import DataError
from kitae.recipe.small_inputs import Shards
from kitae.small.pieces import SPECIAL, tokenizer_files
from kitae.small.text import paragraphs

ROWS = {"train": 512, "heldout": 64}
_SEEDS = {"train": 5, "heldout": 6}
_SHARE, _HIDDEN, _RANDOM = 0.15, 0.8, 0.1
_PAD, _, _CLS, _SEP, _MASK = range(len(SPECIAL))
Row = dict[str, NDArray[np.int64]]


def shard(made: Shards, part: str) -> bytes:
    """The content of one shard. Raises `DataError` where h5py is missing."""
    try:
        import h5py
    except ImportError as error:
        raise DataError("shards of masked rows need the package h5py; pip install 'kitae[hdf5]'") from error
    draw = np.random.default_rng([_SEEDS[part], made.length])
    texts = _sentences(made, part)
    rows = [_row(texts, made, draw) for _ in range(ROWS[part])]
    content = io.BytesIO()
    # libver and no times: the same bytes each time.
    with h5py.File(content, "w", libver="latest") as file:
        for key in rows[0]:
            stacked = np.stack([row[key] for row in rows]).astype("i4")
            file.create_dataset(key, data=stacked, track_times=False)
    return content.getvalue()


def _sentences(made: Shards, part: str) -> list[list[int]]:
    """Ids of the sentences of the text, in order."""
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(tokenizer_files(made.pieces)["tokenizer.json"].decode())
    texts = (sentence for text in paragraphs("english", part) for sentence in re.split(r"(?<=[.!?]) ", text))
    found = [backend.encode(text, add_special_tokens=False).ids for text in texts]
    return [ids for ids in found if ids]


def _row(texts: Sequence[list[int]], made: Shards, draw: np.random.Generator) -> Row:
    """A pair of sentences, the second of which may be of elsewhere, and what is hidden of it."""
    first, follows = int(draw.integers(len(texts) - 1)), bool(draw.integers(2))
    second = first + 1 if follows else int(draw.integers(len(texts)))
    room = made.length - 3
    one = texts[first][: room // 2]
    other = texts[second][: room - len(one)]
    ids = np.array([_CLS, *one, _SEP, *other, _SEP], np.int64)
    spare = made.length - len(ids)
    hidden, positions, labels = _masked(ids, made.predictions, draw)
    segments = np.arange(len(ids)) >= len(one) + 2
    return {
        "input_ids": np.pad(hidden, (0, spare)),
        "input_mask": np.pad(np.ones_like(ids), (0, spare)),
        "segment_ids": np.pad(segments.astype(np.int64), (0, spare)),
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "next_sentence_labels": np.array(int(not follows), np.int64),
    }


def _masked(ids: NDArray[np.int64], most: int, draw: np.random.Generator) -> tuple[NDArray[np.int64], ...]:
    """Ids with some hidden; where, and what stood there, both padded with 0."""
    places = np.flatnonzero(ids >= len(SPECIAL))
    count = min(most, max(1, round(len(places) * _SHARE)), len(places))
    chosen = np.sort(draw.permutation(places)[:count])
    fate = draw.random(count)
    hidden = ids.copy()
    hidden[chosen[fate < _HIDDEN]] = _MASK
    random = chosen[(fate >= _HIDDEN) & (fate < _HIDDEN + _RANDOM)]
    hidden[random] = draw.integers(len(SPECIAL), ids.max() + 1, len(random))
    pad = (0, most - count)
    return hidden, np.pad(chosen, pad), np.pad(ids[chosen], pad)
