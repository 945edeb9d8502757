"""Which model the recipe's objective needs, whatever the weights to start from are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kitae.data.labelled import class_names
from kitae.recipe.masking import MaskingConfig
from kitae.stages.files import read_json
from kitae.stages.job import Job

if TYPE_CHECKING:
    from kitae.data.tokenizer import TextTokenizer
    from kitae.data.word_tokenizer import WordTokenizer


def target_of(job: Job, config: Mapping[str, Any]) -> dict[str, Any]:
    """The config.json of the model to train, from that of the start. Raises `RecipeError`."""
    from kitae.model.targets import target_config

    return target_config(config, job.recipe.objective, **head_options(job))


def target_identity(job: Job) -> dict[str, object]:
    """What beside the start decides which heads an encoder gets, and how missing ones are drawn."""
    if job.recipe.objective == "causal-lm":
        return {}
    labels = job.recipe.data.labels
    # The classes that the text names are known once it is prepared; the key has to be the same before.
    named = labels is None or labels.class_names is not None
    heads = head_options(job) if named else {"text": job.data_key}
    return {"objective": job.recipe.objective, **heads, "seed": job.recipe.seed}


def head_options(job: Job) -> dict[str, Any]:
    """Options of `target_config`, from the recipe and, where that leaves it to the text, from the text."""
    return _OPTIONS[job.recipe.objective](job)


def proof_prompts(job: Job) -> list[list[int]]:
    """Ids of the recipe's prompts, with the special tokens that a text has in the training."""
    if job.recipe.objective == "causal-lm":
        return [job.prompt_ids(text) for text in job.recipe.proof.prompts]
    words = words_of(job)
    first, last = words.special.need("cls", "sep")
    return [[first, *map(int, ids), last] for ids in words.encode_batch(job.recipe.proof.prompts)]


def tokenizer_of(job: Job) -> TextTokenizer | WordTokenizer:
    """The tokenizer that the objective's text is cut by. Raises `DataError`."""
    return job.tokenizer if job.recipe.objective == "causal-lm" else words_of(job)


def words_of(job: Job) -> WordTokenizer:
    """The tokenizer of an encoder. Raises `DataError`."""
    from kitae.data.word_tokenizer import load_tokenizer

    return load_tokenizer(job.tokenizer_folder, job.recipe.data.dictionary)


def _pairs(job: Job) -> dict[str, Any]:
    configs = [recipe.data.masking or MaskingConfig() for _, recipe in job.phases]
    return {"next_sentence": any(config.next_sentence for config in configs)}


def _classes(job: Job) -> dict[str, Any]:
    labels = job.recipe.data.labels
    assert labels is not None, "the recipe is checked"
    return {"labels": labels.class_names or _prepared_names(job)}


def _prepared_names(job: Job) -> list[str]:
    """The classes of the prepared text; two, without names, while that is not there."""
    card = job.cache / "data" / job.data_keys[-1] / "card.json"
    return class_names(read_json(card)) if card.is_file() else ["LABEL_0", "LABEL_1"]


_OPTIONS: dict[str, Callable[[Job], dict[str, Any]]] = {
    "causal-lm": lambda job: {},
    "masked-lm": _pairs,
    "classification": _classes,
}
"""By objective."""
