"""What an encoder is proven by: its hidden states at real tokens, and the logits of all its heads.

Each prompt is followed by some padding, so that masks are proven as well. S positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kitae.checkpoint.model_folder import build_model, model_of, open_model
from kitae.checkpoint.pipe import TensorSource
from kitae.checkpoint.stock import load_stock
from kitae.errors import ProofError
from kitae.model.encoder import Encoder
from kitae.model.encoder_config import EncoderConfig, Head
from kitae.model.encoder_names import with_pooler_as_stored

Prompts = Sequence[Sequence[int]]
PADDING = 3
AUTO_CLASSES: dict[Head, str] = {
    "none": "AutoModel",
    "mlm": "AutoModelForMaskedLM",
    "pretraining": "AutoModelForPreTraining",
    "classification": "AutoModelForSequenceClassification",
}
"""How people load a model with each head."""
_LOGITS: dict[Head, tuple[str, ...]] = {
    "none": (),
    "mlm": ("logits",),
    "pretraining": ("prediction_logits", "seq_relationship_logits"),
    "classification": ("logits",),
}
"""Fields of what transformers' model gives: of tokens first, then of rows."""


@dataclass(frozen=True)
class Row:
    """A padded prompt of token ids; its second half is of the second segment, where the model has two."""

    ids: torch.Tensor
    types: torch.Tensor
    """[1, S] each."""
    real: int
    """Tokens before the padding."""

    @classmethod
    def of(cls, prompt: Sequence[int], config: EncoderConfig) -> Row:
        """As much of the prompt as the model has positions for."""
        cut = list(prompt[: config.max_position_embeddings])
        length = min(len(cut) + PADDING, config.max_position_embeddings)
        ids = torch.tensor([cut + [config.pad_token_id or 0] * (length - len(cut))])
        second = torch.arange(length)[None] >= (len(cut) + 1) // 2
        return cls(ids, second.long() if config.type_vocab_size > 1 else torch.zeros_like(ids), len(cut))

    def numbers(self, of_tokens: Sequence[torch.Tensor], of_rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """All numbers [n] of the real tokens in [1, S, ...], and of [1, ...]."""
        return torch.cat(
            [*(one[0, : self.real].flatten() for one in of_tokens), *(one[0] for one in of_rows)]
        )


def kitae_outputs(folder: Path, prompts: Prompts) -> list[torch.Tensor]:
    """Of kitae's encoder, by prompt."""
    encoder = build_model(open_model(folder))
    assert isinstance(encoder, Encoder)
    return outputs(encoder, prompts)


def source_outputs(config: Mapping[str, Any], source: TensorSource, prompts: Prompts) -> list[torch.Tensor]:
    """Of kitae's encoder with the tensors of a source, by prompt."""
    encoder = model_of(config, source)
    assert isinstance(encoder, Encoder)
    return outputs(encoder, prompts)


@torch.inference_mode()
def outputs(encoder: Encoder, prompts: Prompts) -> list[torch.Tensor]:
    """Hidden states and logits, by prompt."""
    return [_outputs(encoder, Row.of(prompt, encoder.config)) for prompt in prompts]


def _outputs(encoder: Encoder, row: Row) -> torch.Tensor:
    hidden = encoder(row.ids, row.types, torch.tensor([row.real]))
    of_tokens = [hidden, encoder.token_logits(hidden)] if encoder.head is not None else [hidden]
    of_rows = [encoder.pair_logits(hidden)] if encoder.pair is not None else []
    of_rows += [encoder.class_logits(hidden)] if encoder.classifier is not None else []
    # A bare encoder's pooler is its only head.
    of_rows += [encoder.pooled(hidden)] if encoder.config.head == "none" and encoder.pooler else []
    return row.numbers(of_tokens, of_rows)


def stock_model(folder: Path, dtype: torch.dtype) -> Any:
    """The folder as stock transformers loads it."""
    config = open_model(folder).model_config
    assert isinstance(config, EncoderConfig)
    options = {"add_pooling_layer": config.pooler} if config.head == "none" else {}
    return load_stock(AUTO_CLASSES[config.head], folder, dtype, **options)


def stock_from(config: Mapping[str, Any], source: TensorSource, dtype: torch.dtype) -> Any:
    """The model of transformers with the tensors of a source; ProofError unless it is they that it has."""
    import transformers

    described = transformers.BertConfig(**config)
    settled = with_pooler_as_stored(EncoderConfig.from_hf(config), source.tensors())
    options = {"add_pooling_layer": settled.pooler} if settled.head == "none" else {}
    (name,) = config.get("architectures") or ["BertModel"]
    make: Any = getattr(transformers, name)
    model = make(described, **options).to(dtype).eval()
    state = {one: source.read(one).to(dtype) for one in source.tensors()}
    left = model.load_state_dict(state, strict=False)
    missing = set(left.missing_keys) - {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
    if missing or left.unexpected_keys:
        raise ProofError(
            f"transformers' {name} has other tensors: {sorted(missing)} are missing, "
            f"{left.unexpected_keys} are unknown; please report it"
        )
    return model


@torch.inference_mode()
def stock_outputs(model: Any, prompts: Prompts) -> list[torch.Tensor]:
    """Of transformers' encoder, by prompt."""
    config = EncoderConfig.from_hf({**model.config.to_dict(), "architectures": [type(model).__name__]})
    return [_stock_outputs(model, config, Row.of(prompt, config)) for prompt in prompts]


def _stock_outputs(model: Any, config: EncoderConfig, row: Row) -> torch.Tensor:
    given = model(
        row.ids,
        attention_mask=(torch.arange(row.ids.shape[1]) < row.real).long()[None],
        token_type_ids=row.types,
        output_hidden_states=True,
    )
    logits = [getattr(given, name) for name in _LOGITS[config.head]]
    pooled = given.pooler_output if config.head == "none" else None
    of_rows = [one for one in (*logits, pooled) if one is not None and one.dim() == 2]
    return row.numbers([given.hidden_states[-1], *(one for one in logits if one.dim() == 3)], of_rows)


def fixed_prompts(config: EncoderConfig) -> list[list[int]]:
    """Ids all over the vocabulary, its first and last rows included; one prompt as long as the positions."""
    most = min(config.max_position_embeddings, 512)
    lengths = sorted({min(16, most), max(1, min(7, most)), most}, reverse=True)
    # Multiples of a large prime hit every part of a vocabulary.
    numbers = iter(range(sum(lengths)))
    prompts = [[next(numbers) * 1_000_003 % config.vocab_size for _ in range(length)] for length in lengths]
    prompts[0][-1] = config.vocab_size - 1
    return prompts
