"""Archives of torch.save with pickles made by hand."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import torch

TRAPPED = "trapped"
"""What every trap would make in the current folder."""


def archive(path: Path, pickled: bytes, records: dict[str, bytes] | None = None) -> Path:
    """An archive with this data.pkl."""
    with zipfile.ZipFile(path, "w") as file:
        for name, content in {"data.pkl": pickled, "byteorder": b"little", **(records or {})}.items():
            file.writestr(f"archive/{name}", content)
    return path


class Calls:
    """Pickles as a call of a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self._call

    def __call__(self) -> None:
        raise AssertionError("only the pickler wants it to be callable")


def text(value: str) -> bytes:
    """BINUNICODE."""
    encoded = value.encode()
    return b"X" + len(encoded).to_bytes(4, "little") + encoded


def name(module: str, attribute: str) -> bytes:
    """GLOBAL."""
    return f"c{module}\n{attribute}\n".encode()


def same_state(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    """Same keys in the same order, shapes, dtypes and bits."""
    assert list(left) == list(right)
    for key, tensor in left.items():
        other = right[key]
        assert (tensor.dtype, tensor.shape) == (other.dtype, other.shape), key
        assert torch.equal(
            tensor.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8)
        ), key
