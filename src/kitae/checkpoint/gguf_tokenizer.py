"""The tokenizer of a GGUF file as tokenizer.json and its companions.

Text is cut as the file's own `tokenizer.ggml.pre` says. transformers' reading of GGUF does not know `smollm`,
which cuts digits apart: it gives other ids than that where several blanks precede a digit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from kitae.errors import WeightsError

_SPECIAL, _USER_DEFINED = 3, 4
"""Kinds of tokens that text is cut at before BPE."""


def _byte_level() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _digits_apart() -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _byte_level()])


PRE_TOKENIZERS: dict[str, Callable[[], Any]] = {"gpt-2": _byte_level, "smollm": _digits_apart}
"""How text is cut into words, by the name in `tokenizer.ggml.pre`."""
_SPECIAL_NAMES = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def write_tokenizer(metadata: Mapping[str, Any], folder: Path) -> None:
    """Write tokenizer.json, its config and special tokens into `folder`; WeightsError for unknown kinds."""
    tokenizer = build_tokenizer(metadata)
    special = _special_tokens(metadata)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata.get("llama.context_length"),
        **special,
    }
    if "tokenizer.chat_template" in metadata:
        config["chat_template"] = metadata["tokenizer.chat_template"]
    # Not `tokenizer.save`: it raises a bare Exception where a full disk must be told apart.
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    for name, value in (("tokenizer_config.json", config), ("special_tokens_map.json", special)):
        (folder / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def build_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that the metadata describe."""
    kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or pre not in PRE_TOKENIZERS:
        known = ", ".join(f"gpt2/{name}" for name in PRE_TOKENIZERS)
        raise WeightsError(f"GGUF tokenizer {kind}/{pre} is not supported; kitae reads {known}")
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [
        (left, right) for left, _, right in (m.partition(" ") for m in metadata["tokenizer.ggml.merges"])
    ]
    vocab = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]()
    tokenizer.decoder = decoders.ByteLevel()
    _add_tokens(tokenizer, tokens, metadata.get("tokenizer.ggml.token_type", ()))
    if metadata.get("tokenizer.ggml.add_bos_token"):
        bos = _special_tokens(metadata)["bos_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, vocab[bos])]
        )
    return tokenizer


def _add_tokens(tokenizer: Tokenizer, tokens: list[str], kinds: list[int]) -> None:
    for token, kind in zip(tokens, kinds, strict=False):
        if kind in (_SPECIAL, _USER_DEFINED):
            special = kind == _SPECIAL
            tokenizer.add_tokens([AddedToken(token, special=special, normalized=False)])


def _special_tokens(metadata: Mapping[str, Any]) -> dict[str, str]:
    tokens = metadata["tokenizer.ggml.tokens"]
    numbers = {key: metadata.get(f"tokenizer.ggml.{name}_token_id") for key, name in _SPECIAL_NAMES.items()}
    return {key: tokens[number] for key, number in numbers.items() if number is not None}
