"""Which model an objective needs, as a config.json: the class of transformers, and its labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kitae.errors import RecipeError, WeightsError
from kitae.model.encoder_config import ARCHITECTURES, EncoderConfig, Head
from kitae.model.tables import parse_config

_HEADS: dict[tuple[str, bool], Head] = {
    ("masked-lm", False): "mlm",
    ("masked-lm", True): "pretraining",
    ("classification", False): "classification",
}
"""By objective, and whether the rows are sentence pairs."""
_ANSWERS = {
    "causal-lm": (None,),
    "masked-lm": ("mlm", "pretraining"),
    "classification": ("classification",),
}
"""Heads that tell what an objective asks of held-out rows; None is a decoder's."""
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


def check_answers(
    name: str, config: Mapping[str, Any], objective: str, labels: Sequence[str] | None = None
) -> None:
    """Raise `WeightsError` for a model, called `name`, that does not tell what `objective` asks of rows.

    A classifier has to have the classes `labels` in their order, or as many without names.
    """
    parsed = parse_config(config)
    head = parsed.head if isinstance(parsed, EncoderConfig) else None
    if head not in _ANSWERS[objective]:
        kind = ", ".join(config.get("architectures") or [parsed.model_type])
        raise WeightsError(
            f"{name}: a {kind} cannot be judged by objective: {objective}; give a model of that kind"
        )
    if isinstance(parsed, EncoderConfig) and labels is not None:
        own = label_names(config, parsed.num_labels)
        if own not in (tuple(labels), _unnamed(len(labels))):
            raise WeightsError(
                f"{name}: its classes are {', '.join(own)}, and those of the text {', '.join(labels)}, in "
                "this order; give a model that has the same ones"
            )


def renamed_classes(config: Mapping[str, Any], target: Mapping[str, Any]) -> str | None:
    """What to say where the classes of `config` go on as those of `target`, under other names; else None."""
    old, new = parse_config(config), parse_config(target)
    if not (isinstance(old, EncoderConfig) and isinstance(new, EncoderConfig)):
        return None
    if {old.head, new.head} != {"classification"} or old.num_labels != new.num_labels:
        return None
    names = [label_names(one, old.num_labels) for one in (config, target)]
    if names[0] == names[1]:
        return None
    shown = ", ".join(f"{before} as {after}" for before, after in zip(*names, strict=True) if before != after)
    return f"the classifier goes on with its classes under other names: {shown}"


def label_names(config: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """Names of the labels by number, as config.json has them."""
    names = config.get("id2label") or {}
    return tuple(str(names.get(str(number), name)) for number, name in enumerate(_unnamed(count)))


def _unnamed(count: int) -> tuple[str, ...]:
    return tuple(f"LABEL_{number}" for number in range(count))


def _labels(count: int | None, names: Sequence[str] | None) -> dict[str, Any]:
    shown = _unnamed(count or 0) if names is None else tuple(names)
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
