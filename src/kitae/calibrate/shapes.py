"""What is measured for each precision: pieces by shape, then small models.

Shapes span what trainings on a CPU use. Each group has constants of its own, beside those of groups above it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from kitae import catalog
from kitae.calibrate import pieces
from kitae.calibrate.pieces import Piece
from kitae.calibrate.trial import Trial
from kitae.model.tables import parse_config
from kitae.parallel.mesh import Mesh
from kitae.plan.local import counts_of
from kitae.plan.machine import here
from kitae.plan.parts import body, optimizer, update_counts
from kitae.plan.work import Work
from kitae.recipe.parallel import ParallelConfig

PRODUCTS = (
    *((128, 64, 192), (128, 256, 1408), (512, 64, 352), (512, 256, 768), (512, 704, 256), (1024, 256, 256)),
    *((1024, 576, 960), (2048, 256, 1408), (512, 1536, 576), (512, 768, 2048), (2048, 128, 384)),
    (256, 768, 768),
)
"""Tokens, inputs, outputs."""
CAUSAL = (
    *((1, 32, 4, 2, 16), (8, 64, 4, 2, 16), (8, 128, 8, 4, 32), (4, 256, 8, 4, 32), (2, 512, 9, 3, 64)),
    *((1, 1024, 8, 8, 32), (1, 1024, 4, 1, 64), (4, 256, 12, 12, 64), (4, 128, 9, 3, 64), (2, 512, 8, 4, 32)),
    *((4, 256, 4, 4, 64), (1, 768, 6, 2, 64), (1, 1536, 4, 2, 32)),
)
"""Rows, length, heads, KV heads, head size."""
WHOLE = (
    *((1, 32, 2, 32), (16, 64, 4, 16), (16, 128, 4, 64), (8, 128, 8, 64), (4, 256, 12, 64), (2, 512, 8, 32)),
    *((16, 128, 12, 32), (16, 64, 8, 64)),
)
"""Rows, length, heads, head size."""
VOCABULARY = (
    *((512, 512, 64), (512, 4096, 256), (1024, 8192, 256), (512, 16384, 128), (300, 16384, 512)),
    (512, 4096, 576),
)
"""Targets, rows, hidden size."""
EMBEDDING = ((512, 512, 64), (1024, 8192, 256), (512, 16384, 128), (2048, 2048, 256), (4096, 512, 576))
"""Tokens, rows, hidden size."""
DECODERS = (
    *((64, 176, 1, 4, 2, 1, 32), (64, 176, 8, 4, 2, 1, 32), (64, 176, 2, 4, 4, 16, 128)),
    *((64, 704, 2, 4, 2, 16, 64), (256, 256, 2, 8, 2, 8, 128), (256, 704, 3, 8, 8, 4, 128)),
    *((384, 384, 2, 6, 6, 4, 256), (576, 1536, 1, 9, 3, 2, 256)),
)
"""Hidden, intermediate, layers, heads, KV heads, rows, length."""
ENCODERS = (
    *((64, 256, 1, 2, 1, 32, 0.0), (64, 256, 6, 2, 1, 32, 0.0), (64, 256, 2, 2, 16, 64, 0.0)),
    *((64, 1024, 2, 2, 16, 64, 0.0), (256, 256, 2, 4, 8, 128, 0.1), (256, 1024, 2, 4, 8, 128, 0.1)),
    *((64, 128, 2, 2, 32, 64, 0.1), (512, 1024, 1, 8, 4, 128, 0.0)),
)
"""Hidden, intermediate, layers, heads, rows, length, dropout."""
OPTIMIZED = ((64, 176, 6, 64), (256, 704, 3, 8192), (384, 1408, 3, 8192))
"""Hidden, intermediate, layers, vocabulary."""
COPIES = ((64, 176, 2, 2, 2, 1, 16, 512), (256, 704, 2, 4, 4, 1, 16, 4096), (384, 1024, 4, 6, 6, 1, 16, 8192))
CUT = ((64, 176, 4, 2, 2, 1, 16, 512), (256, 704, 2, 4, 4, 2, 64, 512), (512, 1024, 2, 8, 8, 4, 128, 512))
"""Two copies of a decoder, and one that is cut in two: as `DECODERS`, and rows of the vocabulary."""
SMALL = 64
"""Rows of the vocabulary where it is not what is measured."""

Group = list[Piece]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "autocast": torch.bfloat16}


def groups(precision: str) -> Iterator[tuple[str, Callable[[], Group]]]:
    """Groups of pieces of a precision, by name, each made when its turn comes."""
    dtype = DTYPES[precision]
    yield "products", lambda: [pieces.linear(*one, dtype) for one in PRODUCTS]
    yield "causal attention", lambda: [pieces.causal(*one, dtype) for one in CAUSAL]
    yield "attention", lambda: [pieces.whole(*one, False, dtype) for one in WHOLE]
    yield "attention with dropout", lambda: [pieces.whole(*one, True, dtype) for one in WHOLE]
    yield "vocabulary", lambda: [pieces.loss(*one, dtype) for one in VOCABULARY]
    yield "embedding", lambda: [pieces.embedding(*one, dtype) for one in EMBEDDING]
    yield from models(precision)


def models(precision: str) -> Iterator[tuple[str, Callable[[], Group]]]:
    """Groups of whole models."""
    yield "decoder layers", lambda: [_body(decoder(*one, precision=precision)) for one in DECODERS]
    yield "encoder layers", lambda: [_body(encoder(*one, precision=precision)) for one in ENCODERS]
    yield "adamw", lambda: _optimizers("adamw", precision)
    yield "lamb", lambda: _optimizers("lamb", precision)
    if precision == "bf16":
        yield "rounding", lambda: _optimizers("adamw", "bf16-sr")
    yield "updates", lambda: [_update(one) for one in _updates(precision)]


def joint(precision: str, mesh: Mesh) -> Iterator[tuple[str, Callable[[], Group]]]:
    """Groups of whole models on two ranks, whose world is `mesh`: what is left are their collectives."""
    cut = Mesh(control=mesh.control, tensor=mesh.world, world=mesh.world)
    place = here(mesh.control.size, measure=False)

    def group(shapes: tuple[tuple[int, ...], ...], whose: Mesh) -> Group:
        made: Group = []
        for *shape, vocabulary in shapes:
            alone = decoder(*shape, vocabulary=vocabulary, precision=precision)
            copies, parts = whose.data.size, whose.tensor.size
            rows = alone.rows * copies
            work = replace(alone, tensor_parallel=parts, data_parallel=copies, global_rows=rows)
            made.append((counts_of(work, place), Trial(work, whose).update))
        return made

    yield "copies", lambda: group(COPIES, mesh)
    yield "a cut model", lambda: group(CUT, cut)


def decoder(
    hidden: int, inner: int, layers: int, heads: int, kv_heads: int, rows: int, length: int, **other: Any
) -> Work:
    """A decoder's work; `other` as in `_work`."""
    config = {
        **catalog.preset("llama-10m").config,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": other.pop("vocabulary", SMALL),
    }
    return _work(config, "causal-lm", rows, length, dropout=0.0, **other)


def encoder(
    hidden: int, inner: int, layers: int, heads: int, rows: int, length: int, dropout: float, **other: Any
) -> Work:
    """A masked-language encoder's work; `other` as in `_work`."""
    config = {
        **catalog.preset("bert-mini").config,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "vocab_size": other.pop("vocabulary", SMALL),
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
    }
    return _work(config, "masked-lm", rows, length, dropout=dropout, **other)


def _work(
    config: dict[str, Any],
    objective: str,
    rows: int,
    length: int,
    *,
    dropout: float,
    precision: str,
    optimizer: str = "adamw",
    micro_batches: int = 1,
) -> Work:
    parsed = parse_config(config)
    return Work(
        config=parsed,
        tied=parsed.tie_word_embeddings,
        objective=objective,
        optimizer=optimizer,
        precision=precision,
        recompute="none",
        rows=rows,
        length=length,
        global_rows=rows * micro_batches,
        predictions=length if objective == "causal-lm" else max(1, round(0.15 * length)),
        chunk_tokens=512,
        hidden_dropout=dropout > 0,
        attention_dropout=dropout > 0,
        document_mask=False,
        tensor_parallel=1,
        data_parallel=1,
        sequence_parallel=False,
        zero1=False,
        wire_bytes=4,
        bucket_bytes=ParallelConfig().bucket_bytes,
        backend="cpu",
    )


def _optimizers(name: str, precision: str) -> Group:
    return [_finish(_optimized(*one, name, precision)) for one in OPTIMIZED]


def _optimized(hidden: int, inner: int, layers: int, vocabulary: int, name: str, precision: str) -> Work:
    heads = hidden // 64
    return decoder(
        *(hidden, inner, layers, heads, heads, 1, 16),
        vocabulary=vocabulary,
        optimizer=name,
        precision=precision,
    )


def _updates(precision: str) -> tuple[Work, ...]:
    return (
        decoder(64, 176, 2, 4, 2, 1, 64, vocabulary=512, precision=precision),
        decoder(256, 704, 4, 8, 2, 1, 32, vocabulary=2048, micro_batches=4, precision=precision),
        encoder(256, 1024, 4, 4, 1, 32, 0.1, vocabulary=2048, micro_batches=4, precision=precision),
    )


def _body(work: Work) -> Piece:
    return body(work), Trial(work).body


def _finish(work: Work) -> Piece:
    return optimizer(work), Trial(work).finish


def _update(work: Work) -> Piece:
    return update_counts(work), Trial(work).update
