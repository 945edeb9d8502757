"""The proof of an exported folder: stock transformers loads it, gives kitae's logits, and generates.

An encoder does not generate; it is proven by its hidden states and the logits of its heads.

Logits are compared in fp32, whose rounding is not small in deep models: for SmolLM2-135M (30 layers, logits
up to 40) transformers differs from its own fp64 result by 0.5e-4 to 7e-4, by prompt. So where a difference is
above the limit, transformers is asked again in fp64, and twice its own rounding is added to the limit; a
wrong weight, order or frequency is off by far more than that.
"""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kitae.checkpoint import encoder_proof
from kitae.checkpoint.hf import read_json
from kitae.checkpoint.model_folder import load_decoder
from kitae.checkpoint.stock import load_stock, stock_errors, stock_products
from kitae.errors import ProofError
from kitae.model.encoder_config import MODEL_TYPE

GENERATED_TOKENS = 5
Prompts = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Proof:
    """A folder that passed: how far its logits in kitae are from those in stock transformers, in fp32."""

    max_difference: float
    differences: tuple[float, ...]
    """Per prompt, the largest of all."""
    limit: float
    rounding: tuple[float, ...]
    """Per prompt, how far transformers is from its own fp64 result; 0 where it was not needed to judge."""
    prompts: tuple[tuple[int, ...], ...]
    generated: tuple[tuple[int, ...], ...]
    """What stock transformers generates greedily after each prompt; nothing of an encoder."""
    transformers: str
    """Version of transformers that was compared with."""

    def as_dict(self) -> dict[str, Any]:
        """The proof as JSON values."""
        return asdict(self)


def prove_folder(folder: Path, prompts: Prompts, max_logit_difference: float = 1e-4) -> Proof:
    """Compare kitae with stock transformers in fp32 on prompts of token ids; ProofError when they differ.

    Of an encoder hidden states are compared too, and nothing is generated. Only one model is in memory at a
    time.
    """
    assert prompts, "nothing to prove with"
    way = _way(folder)
    ours = way.ours(folder, prompts)
    with stock_products():
        model = way.stock_model(folder, torch.float32)
        with stock_errors(f"compute with {folder}"):
            theirs, generated = way.theirs(model, prompts), tuple(way.generate(model, one) for one in prompts)
    del model
    differences = _differences(ours, theirs)
    rounding = (0.0,) * len(prompts)
    if not _within(differences, rounding, max_logit_difference):
        rounding = _differences(theirs, way.theirs(way.stock_model(folder, torch.float64), prompts))
    if not _within(differences, rounding, max_logit_difference):
        raise ProofError(_failure(folder, prompts, differences, rounding, max_logit_difference, way.told))
    return Proof(
        max_difference=max(differences),
        differences=differences,
        limit=max_logit_difference,
        rounding=rounding,
        prompts=tuple(map(tuple, prompts)),
        generated=generated,
        transformers=importlib.metadata.version("transformers"),
    )


def _differences(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> tuple[float, ...]:
    return tuple((one - other).abs().max().item() for one, other in zip(some, others, strict=True))


def _within(differences: Sequence[float], rounding: Sequence[float], limit: float) -> bool:
    """Whether all are small enough; what is not a number is not."""
    return all(one <= limit + 2 * own for one, own in zip(differences, rounding, strict=True))


@torch.inference_mode()
def _kitae_logits(folder: Path, prompts: Prompts) -> list[torch.Tensor]:
    decoder = load_decoder(folder).eval()
    logits = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        logits.append(decoder.logits(decoder(ids, torch.arange(len(prompt))[None]))[0])
    return logits


@torch.inference_mode()
def _logits(model: Any, prompts: Prompts) -> list[torch.Tensor]:
    return [model(torch.tensor([prompt])).logits[0] for prompt in prompts]


@dataclass(frozen=True)
class _Way:
    """How models of one kind are proven."""

    ours: Callable[[Path, Prompts], list[torch.Tensor]]
    """What kitae gives for each prompt."""
    stock_model: Callable[[Path, torch.dtype], Any]
    theirs: Callable[[Any, Prompts], list[torch.Tensor]]
    """What transformers' model gives for each prompt."""
    generate: Callable[[Any, Sequence[int]], tuple[int, ...]]
    told: str
    """What is compared."""


def _way(folder: Path) -> _Way:
    if read_json(folder / "config.json").get("model_type") != MODEL_TYPE:
        return _Way(_kitae_logits, partial(load_stock, "AutoModelForCausalLM"), _logits, _generate, "logits")
    return _Way(
        encoder_proof.kitae_outputs,
        encoder_proof.stock_model,
        encoder_proof.stock_outputs,
        lambda model, prompt: (),
        "hidden states or logits",
    )


def _generate(model: Any, prompt: Sequence[int]) -> tuple[int, ...]:
    ids = torch.tensor([prompt])
    result = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=GENERATED_TOKENS,
        min_new_tokens=GENERATED_TOKENS,
        do_sample=False,
    )
    return tuple(result[0, len(prompt) :].tolist())


def _failure(
    folder: Path,
    prompts: Prompts,
    differences: Sequence[float],
    rounding: Sequence[float],
    limit: float,
    told: str,
) -> str:
    # Not a number is the worst of all.
    worst = max(
        range(len(prompts)), key=lambda i: (math.isnan(differences[i]), differences[i] - 2 * rounding[i])
    )
    prompt = f"worst of {len(prompts)} prompts: number {worst + 1}, ids {list(prompts[worst])[:8]}"
    if math.isnan(differences[worst]):
        return (
            f"{folder}: {told} of kitae or of transformers are not finite ({prompt}); look for NaN and "
            "infinity in the weights and for odd values in config.json; when there are none, please report it"
        )
    return (
        f"{folder}: {told} of kitae and of transformers differ by {differences[worst]:.3g}, allowed is "
        f"{limit:.3g} and twice the rounding of {rounding[worst]:.3g} ({prompt}); "
        "do not use this folder, please report it with its config.json"
    )
