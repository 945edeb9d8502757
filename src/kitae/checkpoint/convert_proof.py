"""The proof of a conversion: values read back, and logits against transformers, a layer at a time.

The limit is that of `proof.py`, 1e-4 in fp32 and, where that is not enough, twice transformers' own rounding;
it is less where the largest logit is below 1.
"""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kitae.checkpoint import encoder_proof
from kitae.checkpoint.compare import SAYS, Compared, compare, summary
from kitae.checkpoint.coverage import listed
from kitae.checkpoint.layerwise import kitae_logits, require_stock_names, stock_logits
from kitae.checkpoint.nxd import NxdSource
from kitae.checkpoint.nxd_logits import nxd_logits
from kitae.checkpoint.opened import Opened, open_weights
from kitae.checkpoint.pipe import TensorSource
from kitae.checkpoint.proof import prove_folder
from kitae.checkpoint.stock import stock_products
from kitae.errors import ProofError
from kitae.model.config import DecoderConfig
from kitae.model.encoder_config import EncoderConfig

if TYPE_CHECKING:
    from kitae.checkpoint.convert_targets import Conversion

LIMIT = 1e-4
WHOLE_BYTES = 1_000_000_000
"""Up to this size a Hugging Face folder is also loaded whole, as anybody will load it."""
PROMPTS, LENGTH = 3, 16
Logits = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Gives fp32 logits [B, S, V] for ids and positions [B, S]."""


@dataclass(frozen=True)
class Side:
    """Weights that logits are computed from."""

    config: Mapping[str, Any]
    """Content of config.json."""
    decoder_config: DecoderConfig
    source: TensorSource
    tied: bool


def prove(
    conversion: Conversion, folder: Path, *, logits: bool, report: Callable[[str], None]
) -> dict[str, Any]:
    """Prove the result in `folder`; what was found, as JSON values. ProofError when it is not right."""
    opened = conversion.opened
    back = _read_back(conversion, folder)
    checks = [one.check_replicas for one in (opened, back, conversion.optimizer) if one is not None]
    ranks = [check for check in checks if check is not None]
    for check in ranks:
        check()
    count = prove_values(conversion.due, back.source, "weights")
    for kind, source in conversion.moments.items():
        assert back.optimizer is not None
        count += prove_values(source, back.optimizer().moments[kind], kind)
    equal = "; copies on several ranks are equal" if ranks else ""
    report(f"proof: {count} tensors used once and equal after reading back{equal}")
    found: dict[str, Any] = {"tensors": count, "replicas_checked": bool(ranks)}
    return {**found, **_prove_logits(conversion, back, folder, report)} if logits else found


def _read_back(conversion: Conversion, folder: Path) -> Opened:
    order = conversion.format.order if conversion.format else None
    return open_weights(folder, order=order)


def _prove_logits(
    conversion: Conversion, back: Opened, folder: Path, report: Callable[[str], None]
) -> dict[str, Any]:
    if isinstance(conversion.model.model_config, EncoderConfig):
        return _prove_encoder(conversion, back, folder, report)
    model, config = conversion.model, conversion.model.decoder_config
    ours = Side(conversion.config, config, conversion.due, model.tied)
    assert back.config is not None
    theirs = Side(back.config, config, back.source, model.tied)
    named = [(back, "the result's NxD ranks")]
    if conversion.optimizer is None or conversion.optimizer.masters is None:
        # Masters are other weights than those of the ranks' models.
        named.append((conversion.opened, "the source's NxD ranks"))
    ranks = {
        name: partial(nxd_logits, config, one.source, conversion.dtype)
        for one, name in named
        if isinstance(one.source, NxdSource) and one.source.format.order != "trn2-tiled"
    }
    proof = prove_logits(ours, theirs, ranks)
    report(
        f"proof: logits of {' and of '.join(proof['differences'])} differ from transformers' by at most "
        f"{proof['max_difference']:.1e} on {len(proof['prompts'])} prompts, in fp32"
    )
    if conversion.target == "hf":
        proof["generated"] = _prove_stock(folder, ours, proof["prompts"], report)
    return proof


def _prove_encoder(
    conversion: Conversion, back: Opened, folder: Path, report: Callable[[str], None]
) -> dict[str, Any]:
    """Hidden states and logits of kitae with what was due, of transformers with what was written."""
    config = conversion.model.model_config
    assert isinstance(config, EncoderConfig)
    assert back.config is not None
    prompts = encoder_proof.fixed_prompts(config)
    ours = encoder_proof.source_outputs(conversion.config, conversion.due, prompts)
    with stock_products():
        stock = encoder_proof.stock_from(back.config, back.source, torch.float32)
        theirs = encoder_proof.stock_outputs(stock, prompts)
    found, rounding = _by_prompt(ours, theirs), [0.0] * len(prompts)
    if not _within(found, rounding, LIMIT):
        exact = encoder_proof.stock_from(back.config, back.source, torch.float64)
        rounding = _by_prompt(theirs, encoder_proof.stock_outputs(exact, prompts))
    if not _within(found, rounding, LIMIT):
        raise ProofError(_failure("kitae", found, rounding, LIMIT))
    report(
        f"proof: hidden states and logits of kitae differ from transformers' by at most {max(found):.1e} on "
        f"{len(prompts)} prompts, in fp32"
    )
    if conversion.target == "hf":
        prove_folder(folder, prompts)
        report("proof: stock transformers loads the folder")
    return {
        "max_difference": max(found),
        "differences": {"kitae": found},
        "limit": LIMIT,
        "rounding": rounding,
        "prompts": prompts,
        "transformers": importlib.metadata.version("transformers"),
    }


def _prove_stock(
    folder: Path, side: Side, prompts: list[list[int]], report: Callable[[str], None]
) -> list[list[int]]:
    """That stock transformers loads the folder: really where it is small, else name for name and shape."""
    if sum(info.nbytes for info in side.source.tensors().values()) > WHOLE_BYTES:
        require_stock_names(side.config, side.source, side.tied)
        report("proof: transformers' model has these tensors, name for name and shape for shape")
        return []
    generated = prove_folder(folder, prompts).generated
    report(f"proof: stock transformers loads the folder and generates {len(generated[0])} tokens")
    return [list(one) for one in generated]


def prove_values(due: TensorSource, found: TensorSource, what: str) -> int:
    """Compare what was to be written with what is there; how many tensors. ProofError when they differ."""
    compared = compare(due, found)
    by_verdict = summary(compared)
    wrong = [one for verdict, group in by_verdict.items() if verdict != "equal" for one in group]
    if wrong:
        shown = [f"{one.name} ({_told(one)})" for one in wrong]
        raise ProofError(
            f"{what}: {len(wrong)} of {len(compared)} tensors read back otherwise than written: "
            f"{listed(shown)}; the disk may fail: run it again, and report it when it happens again"
        )
    return len(compared)


def prove_logits(
    ours: Side, theirs: Side, also: Mapping[str, Logits] | None = None, limit: float = LIMIT
) -> dict[str, Any]:
    """Logits of kitae on one side against transformers on the other, never with a model in memory.

    `also` are further ways to the same logits, by what they are called. ProofError when any of them differs.
    """
    ids, positions = fixed_prompts(ours.decoder_config)
    with stock_products():
        reference = stock_logits(theirs.config, theirs.source, theirs.tied, ids, positions)
    # Small logits, such as those of an untrained model, differ by less.
    limit *= min(1.0, reference.abs().max().item())
    ways = {"kitae": _kitae(ours), **(also or {})}
    differences = {name: _by_prompt(way(ids, positions), reference) for name, way in ways.items()}
    rounding = [0.0] * PROMPTS
    if not all(_within(one, rounding, limit) for one in differences.values()):
        exact = stock_logits(theirs.config, theirs.source, theirs.tied, ids, positions, torch.float64)
        rounding = _by_prompt(reference, exact)
    for name, found in differences.items():
        if not _within(found, rounding, limit):
            raise ProofError(_failure(name, found, rounding, limit))
    return {
        "max_difference": max(max(found) for found in differences.values()),
        "differences": differences,
        "limit": limit,
        "rounding": rounding,
        "prompts": ids.tolist(),
        "positions": positions.tolist(),
        "transformers": importlib.metadata.version("transformers"),
    }


def fixed_prompts(config: DecoderConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and positions [B, S]: all over the vocabulary, its first and last rows included.

    The positions of the second prompt are spread up to the last one that the model knows, so that a wrong
    scaling of long rotary waves shows.
    """
    length = min(LENGTH, config.max_position_embeddings)
    numbers = torch.arange(PROMPTS * length)
    # Multiples of a large prime hit every part of a vocabulary.
    ids = (numbers * 1_000_003 % config.vocab_size).view(PROMPTS, length)
    ids[0, -1] = config.vocab_size - 1
    positions = torch.arange(length).repeat(PROMPTS, 1)
    positions[1] = torch.linspace(0, config.max_position_embeddings - 1, length, dtype=torch.float64).long()
    return ids, positions


def _kitae(side: Side) -> Logits:
    return lambda ids, positions: kitae_logits(side.decoder_config, side.source, side.tied, ids, positions)


def _by_prompt(some: Iterable[torch.Tensor], others: Iterable[torch.Tensor]) -> list[float]:
    return [
        (one.double() - other.double()).abs().max().item() for one, other in zip(some, others, strict=True)
    ]


def _within(differences: Sequence[float], rounding: Sequence[float], limit: float) -> bool:
    """Whether all are small enough; what is not a number is not."""
    return all(one <= limit + 2 * own for one, own in zip(differences, rounding, strict=True))


def _failure(way: str, differences: Sequence[float], rounding: Sequence[float], limit: float) -> str:
    if any(map(math.isnan, differences)):
        return f"logits of {way} or of transformers are not finite; look at the weights with kitae weights"
    worst = max(range(len(differences)), key=lambda one: differences[one] - 2 * rounding[one])
    return (
        f"logits of {way} and of transformers differ by {differences[worst]:.3g} on fixed prompt {worst + 1}"
        f"; allowed is {limit:.3g} and twice the rounding of {rounding[worst]:.3g}; nothing was "
        "published: weights or config.json are not what they seem (another head order, rope or head size?)"
    )


def _told(one: Compared) -> str:
    more = f", by up to {one.difference:.3g}" if one.verdict == "values" else ""
    return SAYS[one.verdict] + more
