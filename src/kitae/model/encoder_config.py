"""The configuration of a BERT encoder, read from a Hugging Face config.json.

A setting that would change the numbers and that kitae does not compute stops with the field, its value and
what is supported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kitae.errors import RecipeError, WeightsError
from kitae.model.fields import number_of, require_supported, size_of

Head = Literal["none", "mlm", "pretraining", "classification"]
ARCHITECTURES: dict[str, Head] = {
    "BertModel": "none",
    "BertForMaskedLM": "mlm",
    "BertForPreTraining": "pretraining",
    "BertForSequenceClassification": "classification",
}
"""Classes of transformers, and the head that each puts on the encoder."""
MODEL_TYPE = "bert"
REQUIRED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
MUST_BE: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "problem_type": ("single_label_classification",),
    "quantization_config": (),
}
"""Fields whose other values would need other arithmetic; leaving one out, or null, is always fine."""
DEFAULTS: dict[str, Any] = {
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "initializer_range": 0.02,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "tie_word_embeddings": True,
}
"""What transformers' class takes for a field that is left out."""


@dataclass(frozen=True)
class EncoderConfig:
    """Shape and arithmetic of one encoder; sizes are of the full model, whatever the tensor-parallel size."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float
    head: Head
    pooler: bool
    """Whether there is one; a folder of a BertModel may lack it, which its tensors tell."""
    num_labels: int
    hidden_dropout: float
    attention_dropout: float
    classifier_dropout: float
    tie_word_embeddings: bool = True
    initializer_range: float = 0.02
    pad_token_id: int | None = None
    model_type: str = MODEL_TYPE

    @property
    def head_dim(self) -> int:
        """Numbers of one attention head."""
        return self.hidden_size // self.num_heads

    @property
    def predicts_tokens(self) -> bool:
        """Whether there is a head over the vocabulary."""
        return self.head in ("mlm", "pretraining")

    def check_length(self, length: int, where: str = "data.sequence_length") -> None:
        """Raise `RecipeError` for rows longer than the positions that the model has."""
        most = self.max_position_embeddings
        if length > most:
            raise RecipeError(
                f"{where}: {length} tokens are more than the {most} positions that the model has "
                f"(max_position_embeddings); set it to {most} or less"
            )

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> EncoderConfig:
        """Read what config.json holds; WeightsError names a field that is missing, wrong or unsupported."""
        require_supported(config, MUST_BE)
        size = {name: size_of(config, name) for name in REQUIRED}
        values = {**DEFAULTS, **{name: value for name, value in config.items() if value is not None}}
        head = _head(config)
        dropout = _probability(values, "hidden_dropout_prob")
        return cls(
            vocab_size=size["vocab_size"],
            hidden_size=_hidden_size(size["hidden_size"], size["num_attention_heads"]),
            intermediate_size=size["intermediate_size"],
            num_layers=size["num_hidden_layers"],
            num_heads=size["num_attention_heads"],
            max_position_embeddings=size_of(values, "max_position_embeddings"),
            type_vocab_size=size_of(values, "type_vocab_size"),
            layer_norm_eps=number_of(values, "layer_norm_eps"),
            head=head,
            pooler=head != "mlm",
            num_labels=_num_labels(config),
            hidden_dropout=dropout,
            attention_dropout=_probability(values, "attention_probs_dropout_prob"),
            classifier_dropout=_probability({"classifier_dropout": dropout, **values}, "classifier_dropout"),
            tie_word_embeddings=bool(values["tie_word_embeddings"]),
            initializer_range=number_of(values, "initializer_range"),
            pad_token_id=values.get("pad_token_id"),
        )


def _head(config: Mapping[str, Any]) -> Head:
    """What the class in `architectures` puts on the encoder; nothing where none is named."""
    names = config.get("architectures") or ["BertModel"]
    if len(names) != 1 or names[0] not in ARCHITECTURES:
        raise WeightsError(
            f"config.json: architectures: {names!r} is not supported; supported: {', '.join(ARCHITECTURES)}"
        )
    return ARCHITECTURES[names[0]]


def _num_labels(config: Mapping[str, Any]) -> int:
    """As transformers counts them: the names of the labels decide."""
    names = config.get("id2label")
    if names is None:
        return 2 if config.get("num_labels") is None else size_of(config, "num_labels")
    if not isinstance(names, Mapping) or not names:
        raise WeightsError(f"config.json: id2label: {names!r} where a mapping of numbers to names is needed")
    return len(names)


def _hidden_size(hidden_size: int, num_heads: int) -> int:
    if hidden_size % num_heads:
        raise WeightsError(
            f"config.json: hidden_size: {hidden_size} is no multiple of num_attention_heads ({num_heads})"
        )
    return hidden_size


def _probability(values: Mapping[str, Any], name: str) -> float:
    value = number_of(values, name)
    if not 0 <= value < 1:
        raise WeightsError(f"config.json: {name}: {value!r} where a number from 0 to below 1 is needed")
    return value
