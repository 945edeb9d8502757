"""Which model an objective needs, as a config.json: the class of transformers, and its labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kitae.errors import RecipeError
from kitae.model.encoder_config import ARCHITECTURES, EncoderConfig, Head
from kitae.model.tables import parse_config

_HEADS: dict[tuple[str, bool], Head] = {
    ("masked-lm", False): "mlm",
    ("masked-lm", True): "pretraining",
    ("classification", False): "classification",
}
"""By objective, and whether the rows are sentence pairs."""
_NEEDS = {False: "a decoder, such as Llama's", True: "an encoder: a BERT"}


def target_config(
    config: Mapping[str, Any],
    objective: str,
    *,
    num_labels: int | None = None,
    labels: Sequence[str] | None = None,
    next_sentence: bool = False,
) -> dict[str, Any]:
    """The config.json of the model that `objective` trains, from that of the one it starts from.

    A classifier has `num_labels` classes, called `labels` where they have names. RecipeError when the model
    is of a kind that the objective cannot train.
    """
    parsed = parse_config(_unlabelled(config))
    needs_encoder = objective != "causal-lm"
    if isinstance(parsed, EncoderConfig) != needs_encoder:
        raise RecipeError(
            f"objective: {objective} needs {_NEEDS[needs_encoder]}, and the model under model: is "
            f"a {parsed.model_type}; change one of them"
        )
    if not needs_encoder:
        return dict(config)
    head = _HEADS[objective, next_sentence]
    name = next(name for name, kind in ARCHITECTURES.items() if kind == head)
    labelled = _labels(num_labels, labels) if head == "classification" else {}
    return {**_unlabelled(config), "architectures": [name], **labelled}


def _labels(count: int | None, names: Sequence[str] | None) -> dict[str, Any]:
    shown = [f"LABEL_{number}" for number in range(count or 0)] if names is None else list(names)
    assert shown, "a classifier has classes"
    assert count in (None, len(shown)), "as many names as classes"
    return {
        "id2label": {str(number): name for number, name in enumerate(shown)},
        "label2id": {name: number for number, name in enumerate(shown)},
        "problem_type": "single_label_classification",
    }


def _unlabelled(config: Mapping[str, Any]) -> dict[str, Any]:
    of_labels = ("id2label", "label2id", "num_labels", "problem_type")
    return {name: value for name, value in config.items() if name not in of_labels}
