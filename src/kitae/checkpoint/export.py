"""From any source to a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kitae.checkpoint.hf_sink import MAX_SHARD_BYTES, HfSink
from kitae.checkpoint.pipe import TensorInfo, TensorSource
from kitae.checkpoint.stream import stream


def export(
    source: TensorSource,
    folder: Path,
    *,
    config: Mapping[str, Any],
    dtype: torch.dtype | None = None,
    max_shard_bytes: int = MAX_SHARD_BYTES,
    tokenizer_folder: Path | None = None,
    generation_config: Mapping[str, Any] | None = None,
) -> None:
    """Write all of a source as a folder that stock transformers loads; it appears whole or not at all."""
    infos = {name: TensorInfo(info.shape, dtype or info.dtype) for name, info in source.tensors().items()}
    with HfSink(
        folder,
        infos,
        config=config,
        max_shard_bytes=max_shard_bytes,
        tokenizer_folder=tokenizer_folder,
        generation_config=generation_config,
    ) as sink:
        stream(source, sink, dtype=dtype)
