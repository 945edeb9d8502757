"""Names of the files of a Hugging Face folder that belong to its tokenizer."""

from __future__ import annotations

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)
"""What decides how a text is cut."""

CHAT_TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")
"""What decides how a conversation becomes a text; kept with the tokenizer."""
