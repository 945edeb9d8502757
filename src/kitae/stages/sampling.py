"""A text continued before and after the training."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from kitae.stages.files import read_json, write_json
from kitae.stages.job import Job

if TYPE_CHECKING:
    from kitae.model.architecture import Model


def sample_once(job: Job, load: Callable[[], Model], when: Literal["before", "after"], key: str) -> None:
    """Continue the prompt and keep the text, once for this training; `load` is called only if needed."""
    sample = job.recipe.sample
    texts = read_json(job.run.samples)
    if texts.get("key") != key or (sample is not None and texts.get("prompt") != sample.prompt):
        texts = {}
    if sample is None or when in texts:
        return
    from kitae.checkpoint.model_folder import as_decoder
    from kitae.generate import generate

    model, ids = as_decoder(job.run.path, load()), job.prompt_ids(sample.prompt)
    new = generate(
        model,
        ids,
        sample.max_new_tokens,
        eos_ids=model.config.eos_token_ids,
        temperature=sample.temperature,
        top_k=sample.top_k,
        seed=job.recipe.seed,
    )
    # The last token may hold only the first bytes of a character.
    text = job.tokenizer.decode([*ids, *new]).rstrip("\N{REPLACEMENT CHARACTER}")
    write_json(job.run.samples, {**texts, "key": key, "prompt": sample.prompt, when: text})
