"""A tokenizer's chat template: where it stands in a folder, and a message written by it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kitae.data.tokenizer import SETTINGS_FILES, load_json
from kitae.errors import DataError

TEMPLATE_FILE, JSON_FILE = "chat_template.jinja", "chat_template.json"


def chat_template(folder: Path) -> str | None:
    """The template of a tokenizer's folder; of several the one called `default`. Raises `DataError`."""
    file = folder / TEMPLATE_FILE
    try:
        if file.is_file():
            return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: cannot be read as text: {error}; use --no-chat, or mend it") from error
    found = load_json(folder / JSON_FILE).get("chat_template")
    found = found or load_json(folder / SETTINGS_FILES[0]).get("chat_template")
    if isinstance(found, list):
        found = {one.get("name"): one.get("template") for one in found}.get("default")
    return found if isinstance(found, str) else None


def as_message(template: str, text: str, special: Mapping[str, str], place: str) -> str:
    """A user's message, and the beginning of the answer to it. Raises `DataError`, which names `place`."""
    from transformers.utils import chat_template_utils

    render: Any = chat_template_utils.render_jinja_template
    try:
        rendered = render(
            [[{"role": "user", "content": text}]],
            chat_template=template,
            add_generation_prompt=True,
            **special,
        )
    except Exception as error:  # whatever a template raises
        raise DataError(
            f"{place}: the chat template fails: {error}; use --no-chat to continue the text as it is"
        ) from error
    # A list of texts; with the places of the answers behind it, since transformers 4.5x.
    texts = rendered[0] if isinstance(rendered, tuple) else rendered
    return str(texts[0])


def special_tokens(folder: Path) -> dict[str, str]:
    """Special tokens by their names, which templates write out."""
    found: dict[str, str] = {}
    for name in reversed(SETTINGS_FILES):
        for key, value in load_json(folder / name).items():
            token = value.get("content") if isinstance(value, dict) else value
            if key.endswith("_token") and isinstance(token, str):
                found[key] = token
    return found
