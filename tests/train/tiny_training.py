"""A small model, small text and a recipe for the tests of training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from kitae.backend.group import ALONE
from kitae.backend.table import select
from kitae.checkpoint.store import CheckpointStore
from kitae.data.examples import Sample
from kitae.data.pack import PackWriter
from kitae.data.packed import PackedData
from kitae.model.config import DecoderConfig
from kitae.model.decoder import Decoder
from kitae.model.init import initialise
from kitae.parallel.data_parallel import DataParallel
from kitae.parallel.gradients import plain_layouts
from kitae.parallel.mesh import Mesh
from kitae.parallel.shares import Shares
from kitae.recipe.schema import Recipe
from kitae.train.batch import GlobalBatch, global_batch
from kitae.train.job import Phase, TrainJob
from kitae.train.objective import CausalLM
from kitae.train.optimizer import OPTIMIZERS
from kitae.train.precision import PRECISIONS
from kitae.train.step import Stepper

CPU = torch.device("cpu")
VOCABULARY = 61
CONFIG = {
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}


def tiny_decoder(seed: int = 0, tied: bool = True, **changes: object) -> Decoder:
    config = DecoderConfig.from_hf({**CONFIG, "tie_word_embeddings": tied, **changes})
    decoder = Decoder(config, tied=tied)
    initialise(dict(decoder.named_parameters()), decoder.layouts, seed=seed, std=0.1)
    return decoder


def text_tokens(documents: int, seed: int = 0, vocabulary: int = VOCABULARY) -> list[np.ndarray]:
    """Documents with something to learn: mostly each token says which one follows."""
    random = np.random.default_rng(seed)
    follower = np.random.default_rng(99).permutation(vocabulary)
    made = []
    for _ in range(documents):
        ids = [int(random.integers(vocabulary))]
        for _ in range(int(random.integers(3, 40))):
            ids.append(int(random.integers(vocabulary)) if random.random() < 0.1 else int(follower[ids[-1]]))
        made.append(np.array(ids, np.uint32))
    return made


def pack(
    folder: Path,
    documents: list[np.ndarray],
    sequence_length: int = 16,
    *,
    document_mask: bool = True,
    pad_remainder: bool = True,
) -> PackedData:
    writer = PackWriter(folder, "uint16")
    for ids in documents:
        writer.append(ids, np.array([len(ids)], np.int64))
    writer.close(sequence_length=sequence_length, document_mask=document_mask, pad_remainder=pad_remainder)
    return PackedData.open(folder)


def rows_of(folder: Path, count: int, sequence_length: int = 16, seed: int = 0) -> PackedData:
    """Packed data of exactly `count` full rows."""
    tokens = np.concatenate(text_tokens(count * sequence_length, seed))[: count * sequence_length]
    lengths = np.array([len(part) for part in np.array_split(tokens, max(1, len(tokens) // 11))])
    return pack(folder, np.split(tokens, np.cumsum(lengths)[:-1]), sequence_length)


def batch_of(packed: object, rows: Sequence[int], size: int, mesh: Mesh | None = None) -> GlobalBatch:
    """An update of these rows."""
    return global_batch(packed, [Sample(row) for row in rows], size, CPU, mesh)


def recipe(**sections: object) -> Recipe:
    given = {
        "training": {"duration": "4 steps", "global_batch_size": 4, "micro_batch_size": 2},
        "parallel": {"data_parallel_size": 1, "zero1": False},
        **sections,
    }
    return Recipe.model_validate(
        {
            "kitae": 1,
            "name": "tiny",
            "seed": 7,
            "model": {"folder": "model"},
            "data": {"train": [{"path": "text.txt"}], "sequence_length": 16},
            **given,
        }
    )


def stepper(
    model: torch.nn.Module | None = None,
    precision: str = "fp32",
    max_grad_norm: float | None = None,
    learning_rate: float = 0.01,
    optimizer: str = "adamw",
    seed: int = 7,
    mesh: Mesh | None = None,
) -> Stepper:
    model, mesh = model or tiny_decoder(), mesh or Mesh()
    shares = Shares(getattr(model, "layouts", None) or plain_layouts(model), ALONE)
    weights = PRECISIONS[precision](model, shares)
    config = recipe(optimizer={"learning_rate": learning_rate, "name": optimizer}).optimizer
    decayed = {name for name, one in model.named_parameters() if one.dim() > 1}
    made = OPTIMIZERS[config.name](weights, decayed, config, fused=True, seed=seed, shares=shares, mesh=mesh)
    return Stepper(
        objective=CausalLM(model, chunk_tokens=32),
        weights=weights,
        optimizer=made,
        backend=select("cpu"),
        shares=shares,
        mesh=mesh,
        replicas=DataParallel(
            dict(model.named_parameters()), shares, mesh.data, wire_dtype=torch.float32, bucket_bytes=1 << 20
        ),
        sequence_parallel=False,
        max_grad_norm=max_grad_norm,
    )


def job(
    folder: Path, *, train: PackedData | None = None, heldout: PackedData | None = None, **sections: object
) -> TrainJob:
    """A job whose data lies in `folder` and is made when missing; the second call for a folder resumes."""
    if train is None:
        path = folder / "train"
        train = PackedData.open(path) if path.exists() else rows_of(path, 24)
    if heldout is None:
        path = folder / "heldout"
        heldout = PackedData.open(path) if path.exists() else rows_of(path, 5, seed=1)
    run = folder / "run"
    return TrainJob(
        model=tiny_decoder(),
        phases=(Phase(recipe(**sections), train, heldout, "data"),),
        recipe_hash="tiny",
        store=CheckpointStore(run / "checkpoints", keep=2),
        folder=run,
        backend=select("cpu"),
        model_config=CONFIG,
        report=lambda line: None,
    )
