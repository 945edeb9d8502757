"""Stock transformers, against which everything is proven."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from kitae.errors import ProofError

_MUST_BE_EMPTY = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")


@contextmanager
def stock_products() -> Iterator[None]:
    """Products as torch computes them by itself, so that a backend's choice is proven as well."""
    onednn: Any = torch.backends.mkldnn  # torch does not type it
    before = onednn.matmul.fp32_precision
    onednn.matmul.fp32_precision = "ieee"
    try:
        yield
    finally:
        onednn.matmul.fp32_precision = before


@contextmanager
def stock_errors(what: str) -> Iterator[None]:
    """Turn an error of transformers into a ProofError that says what it cannot do.

    It has an error for each thing in a folder that it cannot use, so all of them count.
    """
    try:
        yield
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise ProofError(f"stock transformers cannot {what}: {said}") from error


def load_stock(auto_class: str, folder: Path, dtype: torch.dtype, **options: Any) -> Any:
    """The model of a folder as a class of transformers loads it; ProofError unless key for key."""
    import transformers
    from transformers.utils import logging

    quiet: Any = logging.disable_progress_bar
    quiet()
    load: Any = getattr(transformers, auto_class).from_pretrained
    with stock_errors(f"load {folder}"):
        model, info = load(folder, dtype=dtype, local_files_only=True, output_loading_info=True, **options)
    wrong = {key: sorted(map(str, info[key])) for key in _MUST_BE_EMPTY if info.get(key)}
    if wrong:
        raise ProofError(f"stock transformers loads {folder}, but not key for key: {wrong}")
    return model.eval()
