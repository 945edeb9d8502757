"""Begin and end tokens by the recipe's policy, and the check that the model knows an id."""

from __future__ import annotations

from kitae.data.tokenizer import TextTokenizer
from kitae.errors import DataError
from kitae.recipe.sources import DataConfig


def special_ids(config: DataConfig, tokenizer: TextTokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids before and behind each document, by the recipe's policy; raises `DataError`."""
    automatic = {"bos": tokenizer.adds_bos, "eos": tokenizer.eos_id is not None}
    return (
        _special(config.bos, "bos", tokenizer.bos_id, automatic["bos"]),
        _special(config.eos, "eos", tokenizer.eos_id, automatic["eos"]),
    )


def _special(policy: str, name: str, token: int | None, automatic: bool) -> tuple[int, ...]:
    if policy == "always" and token is None:
        raise DataError(
            f"data.{name}: always, but the tokenizer has no {name} token; set it to never or auto"
        )
    wanted = policy == "always" or (policy == "auto" and automatic)
    return (token,) if wanted and token is not None else ()


def check_token(token: int, text: str, where: str, embedding_rows: int) -> None:
    """Raise `DataError` for an id that the model has no embedding for."""
    if token >= embedding_rows:
        raise DataError(
            f"{where}: token {text!r} has id {token}, but the embedding has {embedding_rows} "
            "rows; the tokenizer belongs to another model, or tokens were added and the embedding not resized"
        )
