"""The proof of an exported folder: stock transformers loads it, gives kitae's logits, and generates."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from kitae.checkpoint.model_folder import load_decoder
from kitae.errors import ProofError

GENERATED_TOKENS = 5
_MUST_BE_EMPTY = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")


@dataclass(frozen=True)
class Proof:
    """A folder that passed: the largest logit difference, over all and for each prompt."""

    max_difference: float
    differences: tuple[float, ...]
    limit: float
    prompts: tuple[tuple[int, ...], ...]
    generated: tuple[tuple[int, ...], ...]
    """What stock transformers generates greedily after each prompt."""
    transformers: str
    """Version of transformers that was compared with."""
    dtype: str = "float32"

    def as_dict(self) -> dict[str, Any]:
        """The proof as JSON values."""
        return asdict(self)


def prove_folder(folder: Path, prompts: Sequence[Sequence[int]], max_logit_difference: float = 1e-4) -> Proof:
    """Compare kitae with stock transformers in fp32 on prompts of token ids; ProofError when they differ.

    Only one of the two models is in memory at a time.
    """
    assert prompts, "nothing to prove with"
    ours = _kitae_logits(folder, prompts)
    theirs, generated = _transformers_logits(folder, prompts)
    differences = tuple((a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True))
    # A difference that is not a number compares as false, so the test asks for what must hold.
    if not all(difference <= max_logit_difference for difference in differences):
        raise ProofError(_failure(folder, prompts, differences, max_logit_difference))
    return Proof(
        max_difference=max(differences),
        differences=differences,
        limit=max_logit_difference,
        prompts=tuple(map(tuple, prompts)),
        generated=generated,
        transformers=importlib.metadata.version("transformers"),
    )


@torch.inference_mode()
def _kitae_logits(folder: Path, prompts: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    decoder = load_decoder(folder).eval()
    logits = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        logits.append(decoder.logits(decoder(ids, torch.arange(len(prompt))[None]))[0])
    return logits


@torch.inference_mode()
def _transformers_logits(
    folder: Path, prompts: Sequence[Sequence[int]]
) -> tuple[list[torch.Tensor], tuple[tuple[int, ...], ...]]:
    model = _stock_model(folder)
    logits = [model(torch.tensor([prompt])).logits[0] for prompt in prompts]
    return logits, tuple(_generate(model, prompt) for prompt in prompts)


def _stock_model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    try:
        load: Any = AutoModelForCausalLM.from_pretrained
        model, info = load(folder, dtype=torch.float32, local_files_only=True, output_loading_info=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise ProofError(f"stock transformers cannot load {folder}: {error}") from error
    wrong = {key: sorted(map(str, info[key])) for key in _MUST_BE_EMPTY if info.get(key)}
    if wrong:
        raise ProofError(f"stock transformers loads {folder}, but not key for key: {wrong}")
    return model.eval()


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
    folder: Path, prompts: Sequence[Sequence[int]], differences: Sequence[float], limit: float
) -> str:
    # Not a number is the worst of all.
    worst = max(range(len(prompts)), key=lambda i: (differences[i] != differences[i], differences[i]))
    return (
        f"{folder}: logits of kitae and of transformers differ by {differences[worst]:.3g}, allowed is "
        f"{limit:.3g} (worst of {len(prompts)} prompts: number {worst + 1}, ids {list(prompts[worst])[:8]}); "
        "do not use this folder, and please report it with its config.json"
    )
