"""Text from a run, a checkpoint or a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path

from kitae.errors import WeightsError


def continue_text(
    path: Path,
    prompt: str,
    max_new_tokens: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
) -> str:
    """The prompt with its continuation. Raises `WeightsError` for a path that holds no model."""
    from kitae.backend.table import select
    from kitae.checkpoint.model_folder import as_decoder, load_model
    from kitae.checkpoint.resume import find_checkpoint
    from kitae.data.tokenizer import TextTokenizer
    from kitae.generate import generate
    from kitae.stages.job import tokenizer_of_run
    from kitae.stages.training import load_checkpoint

    if not path.is_dir():
        raise WeightsError(f"{path} is no folder; give a run, a checkpoint or a Hugging Face folder")
    is_folder = (path / "config.json").is_file()
    device = select().device
    loaded = load_model(path, device=device) if is_folder else load_checkpoint(find_checkpoint(path), device)
    decoder = as_decoder(path, loaded)
    tokenizer = TextTokenizer.load(path if is_folder else tokenizer_of_run(path.absolute()))
    begin = [tokenizer.bos_id] if tokenizer.adds_bos and tokenizer.bos_id is not None else []
    ids = [*begin, *tokenizer.encode(prompt)]
    new = generate(
        decoder,
        ids,
        max_new_tokens,
        eos_ids=decoder.config.eos_token_ids,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    return tokenizer.decode([*ids, *new])
