"""Rules of `--scale-down cpu` on what is read: the model, its tokenizer, texts and labels."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from kitae.catalog import preset
from kitae.recipe.labels import LabelsConfig
from kitae.recipe.masking import MaskingConfig
from kitae.recipe.scale_down import Scaling
from kitae.recipe.scale_shape import is_small, small_config, small_shape
from kitae.recipe.schema import Recipe, phase_recipes
from kitae.recipe.small_inputs import Language, Pieces, Prose, Reviews, Shards, SmallModel
from kitae.recipe.sources import SourceConfig

MOST_BYTES = 20_000_000
"""A text that is larger takes too long to read."""
TEXTS, HELDOUT_TEXTS = 256, 64
_FAR = "it is not here"


def language(recipe: Recipe) -> Language:
    """Of the small text: Japanese for a tokenizer of MeCab's words."""
    hub = f"{recipe.model.hub or ''} {getattr(recipe.data.tokenizer, 'hub', None) or ''}"
    return "japanese" if recipe.data.dictionary is not None or "japanese" in hub.lower() else "english"


def pieces(recipe: Recipe) -> Pieces:
    """The small tokenizer that is of the recipe's kind."""
    if recipe.objective == "causal-lm":
        return Pieces("bpe")
    if language(recipe) == "japanese":
        return Pieces("mecab", recipe.data.dictionary or "ipadic")
    return Pieces("wordpiece")


def model(small: Scaling, ranks: int) -> None:
    """Few layers and heads; a pretrained model becomes a small one of random weights, in the same format."""
    recipe = small.recipe
    before = recipe.parallel.tensor_parallel_size
    (_new_model if recipe.model.preset is not None else _pretrained)(small, before, ranks)


def _new_model(small: Scaling, before: int, ranks: int) -> None:
    recipe = small.recipe
    shape = recipe.model.shape.model_dump(exclude_none=True) if recipe.model.shape is not None else {}
    config = _changed(preset(recipe.model.preset or "").config, shape)
    if not is_small(config):
        for name, value in small_shape(config, before, ranks).items():
            was = _value(config, name)
            small.change(f"model.shape.{name}", was, value, _SHAPE_REASONS[name])
        if shape.get("vocab_size"):
            small.change("model.shape.vocab_size", shape["vocab_size"], None, "as many as the tokenizer has")
    tokenizer = recipe.data.tokenizer
    if tokenizer != "auto" and not small.reach.tokenizer(tokenizer):
        small.change(
            "data.tokenizer", _shown(tokenizer), _small_tokenizer(small), f"{_FAR}; of the same kind"
        )


_HF = {
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
}
_SHAPE_REASONS = {
    "num_layers": "few layers",
    "hidden_size": "as wide as its heads",
    "intermediate_size": "in proportion",
    "num_heads": "few heads, as many to a key-value head",
    "num_kv_heads": "on as many ranks each, where they lie on several",
    "head_dim": "small heads",
}


def _changed(config: Mapping[str, Any], shape: Mapping[str, Any]) -> dict[str, Any]:
    return {**config, **{_HF.get(name, name): value for name, value in shape.items()}}


def _value(config: Mapping[str, Any], name: str) -> Any:
    if name == "head_dim" and "head_dim" not in config:
        return config["hidden_size"] // config["num_attention_heads"]
    return config[_HF.get(name, name)]


def _pretrained(small: Scaling, before: int, ranks: int) -> None:
    recipe = small.recipe
    known = small.reach.config(recipe.model)
    config = known or preset(_DEFAULTS[recipe.objective]).config
    if recipe.model.folder is not None and known is not None and is_small(known):
        return
    dtype: Literal["fp32", "bf16"] = "bf16" if recipe.objective == "causal-lm" else "fp32"
    text = json.dumps(small_config(config, before, ranks), sort_keys=True)
    folder = small.made(SmallModel(text, dtype, pieces(recipe)))
    after = small_config(config, before, ranks)
    why = f"{'its sizes' if known is None else _sizes(known)} become {_sizes(after)}; random weights"
    small.change("model", _shown(recipe.model), {"folder": folder}, why)
    if known is not None:
        _rates(small, known["hidden_size"] / after["hidden_size"])
    tokenizer = recipe.data.tokenizer
    if tokenizer != "auto":
        named = {"folder": folder, **({"dictionary": tokenizer.dictionary} if tokenizer.dictionary else {})}
        small.change("data.tokenizer", _shown(tokenizer), named, "the small model's own")


def own_values(recipe: Recipe, section: str, fields: tuple[str, ...]) -> Iterator[tuple[str, Recipe]]:
    """The recipe, and the phases that set one of these fields themselves: a path's beginning, and values."""
    yield "", recipe
    for index, (_, whole) in enumerate(phase_recipes(recipe) if recipe.phases else ()):
        own = getattr(recipe.phases[index], section)
        if any(getattr(own, name) is not None for name in fields):
            yield f"phases.{index}.", whole


def _rates(small: Scaling, width: float) -> None:
    """Weights that nobody trained learn nothing by the small steps that trained ones need."""
    for path, recipe in own_values(small.recipe, "optimizer", ("learning_rate",)):
        rate = recipe.optimizer.learning_rate
        why = f"random weights, {width:g} times as narrow"
        small.change(f"{path}optimizer.learning_rate", rate, float(f"{rate * width:.3g}"), why)


_DEFAULTS = {"causal-lm": "llama3.2-1b", "masked-lm": "bert-base", "classification": "bert-base"}
"""Whose kind a model has that is not here, and not known."""


def _sizes(config: Mapping[str, Any]) -> str:
    heads, kv_heads = config["num_attention_heads"], config.get("num_key_value_heads")
    groups = f"/{kv_heads}" if kv_heads else ""
    return f"{config['num_hidden_layers']} layers of {config['hidden_size']}, {heads}{groups} heads"


def _shown(section: Any) -> str:
    """A model or tokenizer by its source alone."""
    values = section.model_dump(exclude_none=True, exclude_defaults=True)
    return ", ".join(f"{name}: {value}" for name, value in values.items())


def _small_tokenizer(small: Scaling) -> dict[str, str]:
    made = pieces(small.recipe)
    folder = {"folder": small.made(made)}
    return {**folder, **({"dictionary": made.dictionary} if made.dictionary else {})}


def texts(small: Scaling, length: Callable[[int], int]) -> None:
    """Texts that are here and not large are read; in the place of others stands a small one."""
    recipe = small.recipe
    for path, phase in _sources(recipe):
        _replace(small, f"{path}data.train", phase.data.train, phase, length, "train")
    for path, phase in _heldout(recipe):
        heldout = phase.data.heldout
        sources = heldout.sources if heldout is not None else None
        if sources is not None:
            _replace(small, f"{path}data.heldout.sources", sources, phase, length, "heldout")


def _sources(recipe: Recipe) -> list[tuple[str, Recipe]]:
    own = [("", recipe)]
    for index, (_, phase) in enumerate(phase_recipes(recipe) if recipe.phases else ()):
        changed = recipe.phases[index].data
        if changed.train is not None or (changed.sequence_length is not None and _has_shards(phase)):
            own.append((f"phases.{index}.", phase))
    return own


def _has_shards(phase: Recipe) -> bool:
    """Shards are of one length, so that each phase needs its own."""
    return any(source.format == "hdf5" for source in phase.data.train)


def _heldout(recipe: Recipe) -> list[tuple[str, Recipe]]:
    phases = enumerate(phase_recipes(recipe) if recipe.phases else ())
    own = [
        (f"phases.{index}.", phase)
        for index, (_, phase) in phases
        if recipe.phases[index].data.heldout is not None
    ]
    return [("", recipe), *own]


def _replace(
    small: Scaling,
    path: str,
    sources: list[SourceConfig],
    phase: Recipe,
    length: Callable[[int], int],
    part: str,
) -> None:
    found = [small.reach.source_bytes(source) for source in sources]
    shards = any(source.format == "hdf5" for source in sources)
    size = sum(one or 0 for one in found)
    tokens = phase.data.sequence_length
    # Shards hold ids of the recipe's own tokenizer, in rows of its own length.
    fits = not shards or (length(tokens) == tokens and _has_tokenizer(small))
    if None not in found and size <= MOST_BYTES and fits:
        return
    source = _small_source(small, phase, shards, length(tokens), part)
    if [one.model_dump(exclude_defaults=True) for one in sources] == [source]:
        return
    why = _FAR if None in found else _why_not_read(fits, size)
    small.change(path, ", ".join(one.path or one.hub or "" for one in sources), [source], why)


def _why_not_read(fits: bool, size: int) -> str:
    return (
        f"{size / 1e6:,.0f} MB would take long to read"
        if fits
        else "its rows are of another length or tokenizer"
    )


def _has_tokenizer(small: Scaling) -> bool:
    tokenizer = small.recipe.data.tokenizer
    return tokenizer != "auto" and small.recipe.model.preset is not None and small.reach.tokenizer(tokenizer)


def _small_source(small: Scaling, phase: Recipe, shards: bool, length: int, part: str) -> dict[str, Any]:
    if shards:
        masking = phase.data.masking or MaskingConfig()
        made = Shards(length, masking.predictions(length), pieces(phase))
        return {"path": f"{small.made(made)}/{part}_training_*.hdf5", "format": "hdf5"}
    if phase.data.labels is not None:
        source = next(iter(phase.data.train))
        reviews = _reviews(phase.data.labels, language(phase), source.text_field)
        field = {} if source.text_field == "text" else {"text_field": source.text_field}
        return {"path": f"{small.made(reviews)}/{part}.jsonl", **field}
    return {"path": f"{small.made(Prose(language(phase)))}/{part}.txt", "document": "paragraph"}


def _reviews(labels: LabelsConfig, tongue: Language, text_field: str) -> Reviews:
    known = labels.classes or {"negative": 0, "positive": 1}
    by_class = tuple(
        tuple(value for value, number in known.items() if number == wanted)
        for wanted in range(max(known.values()) + 1)
    )
    stars = {str(star) for star in range(1, 6)}
    dropped = tuple(sorted(stars - set(known))) if set(known) <= stars else ()
    return Reviews(tongue, text_field, labels.field, labels.text_pair_field, by_class, dropped)


def labels(small: Scaling) -> None:
    """Few labelled texts."""
    found = small.recipe.data.labels
    if found is None:
        return
    for name, most in (("sample", TEXTS), ("sample_heldout", HELDOUT_TEXTS)):
        before = getattr(found, name)
        if before is None or before > most:
            small.change(f"data.labels.{name}", before, most, "few texts")
