"""A tokenizer without its post-processor: begin and end tokens stand where the recipe says, only there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from kitae.catalog.hf_files import TOKENIZER_FILES
from kitae.errors import DataError

SETTINGS_FILES = ("tokenizer_config.json", "special_tokens_map.json")
"""Where a tokenizer's folder says which tokens are special; the first one is believed."""
Ids = NDArray[np.uint32]


def settled(backend: Tokenizer) -> Tokenizer:
    """The backend with truncation, padding and BPE dropout off, so that ids depend on the text alone."""
    backend.no_truncation()
    backend.no_padding()
    if getattr(backend.model, "dropout", None):
        backend.model.dropout = None
    return backend


def encode_ids(backend: Tokenizer, texts: Sequence[str]) -> list[Ids]:
    """Ids of each text, without the post-processor's special tokens; raises `DataError`."""
    return [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings_of(backend, texts)]


def encodings_of(backend: Tokenizer, texts: Sequence[str], *, with_words: bool = False) -> list[Any]:
    """The library's encoding of each text, nothing added; slower `with_words`, whose places it then knows.

    Raises `DataError`.
    """
    encode = backend.encode_batch if with_words else backend.encode_batch_fast
    try:
        return list(encode(list(texts), add_special_tokens=False))
    except TypeError as error:  # bytes that are no UTF-8 come from a command line as such characters
        raise DataError("the tokenizer cannot encode a text that is not valid Unicode; give UTF-8") from error
    except Exception as error:  # tokenizers raises bare Exceptions
        raise DataError(f"the tokenizer cannot encode a text: {error}") from error


def tokenizer_fingerprint(folder: Path) -> str:
    """SHA-256 over the bytes of the tokenizer files and the begin and end ids of config.json."""
    digest = hashlib.sha256()
    for name in TOKENIZER_FILES:
        if (folder / name).is_file():
            content = (folder / name).read_bytes()
            digest.update(f"{name}:{len(content)}:".encode() + content)
    config = load_json(folder / "config.json")
    digest.update(json.dumps([config.get("bos_token_id"), config.get("eos_token_id")]).encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class TextTokenizer:
    """A tokenizer folder as kitae uses it."""

    backend: Tokenizer = field(repr=False)
    bos_id: int | None
    eos_id: int | None
    adds_bos: bool
    """Whether the tokenizer by itself begins each text with its begin token."""
    vocab_size: int
    """Largest id of the vocabulary, added tokens included, plus one."""
    fingerprint: str

    @classmethod
    def load(cls, folder: Path) -> TextTokenizer:
        """Load tokenizer.json, or what transformers makes of slow tokenizer files; raises `DataError`."""
        backend = _load_backend(folder)
        ids = backend.get_vocab(with_added_tokens=True).values()
        if not ids:
            raise DataError(f"{folder}: the tokenizer's vocabulary is empty")
        bos = _special_id(folder, "bos", backend)
        return cls(
            backend=backend,
            bos_id=bos,
            eos_id=_special_id(folder, "eos", backend),
            adds_bos=bos is not None and _adds(folder, backend, bos),
            vocab_size=max(ids) + 1,
            fingerprint=tokenizer_fingerprint(folder),
        )

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of each text (uint32), nothing added."""
        return encode_ids(self.backend, texts)

    def encode(self, text: str) -> list[int]:
        """Ids of one text, nothing added."""
        return [int(token) for token in self.encode_batch([text])[0]]

    def decode(self, ids: Sequence[int], *, special: bool = True) -> str:
        """The text of the ids, with special tokens or without."""
        return str(self.backend.decode(list(ids), skip_special_tokens=not special))

    def token(self, token_id: int) -> str:
        """The token as the vocabulary spells it; `<no token N>` when it has none."""
        token = self.backend.id_to_token(token_id)
        return f"<no token {token_id}>" if token is None else str(token)

    def to_json(self) -> str:
        """The whole backend as JSON, for `Tokenizer.from_str` in another process."""
        return str(self.backend.to_str())


def _load_backend(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.is_file():
        return _convert_slow(folder)
    try:
        return settled(Tokenizer.from_file(str(path)))
    except Exception as error:  # tokenizers raises bare Exceptions
        raise DataError(f"{path}: not a tokenizer that `tokenizers` can read: {error}") from error


def _convert_slow(folder: Path) -> Tokenizer:
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise DataError(
            f"{folder}: no tokenizer here (no tokenizer.json, vocab or .model file); set data.tokenizer"
        )
    if load_json(folder / "tokenizer_config.json").get("tokenizer_class") == "BertJapaneseTokenizer":
        raise DataError(
            f"{folder}: a BertJapaneseTokenizer cuts words with MeCab, which is for encoders (objective "
            "masked-lm or classification); name another tokenizer under data.tokenizer"
        )
    try:
        # Only here, and only for such folders: transformers imports torch.
        from transformers import AutoTokenizer

        converted = AutoTokenizer.from_pretrained(str(folder), use_fast=True, local_files_only=True)
        return settled(converted.backend_tokenizer)
    except Exception as error:  # whatever the converters of transformers raise
        raise DataError(
            f"{folder}: no tokenizer.json, and transformers cannot make one from the other files: {error}; "
            "save the tokenizer as a fast one (save_pretrained) and give that folder"
        ) from error


def load_json(path: Path) -> dict[str, Any]:
    """The object of a JSON file, empty where there is none; raises `DataError`."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON: {error}") from error
    return content if isinstance(content, dict) else {}


def _special_id(folder: Path, kind: str, backend: Tokenizer) -> int | None:
    """The begin or end token's id. A tokenizer file that says null is believed before config.json."""
    for name in SETTINGS_FILES:
        content = load_json(folder / name)
        if f"{kind}_token" in content:
            token = content[f"{kind}_token"]
            token = token.get("content") if isinstance(token, dict) else token
            if token is None:
                return None
            known = backend.token_to_id(token)
            return None if known is None else int(known)
    value = load_json(folder / "config.json").get(f"{kind}_token_id")
    value = value[0] if isinstance(value, list) and value else value
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _adds(folder: Path, backend: Tokenizer, bos: int) -> bool:
    """Whether the begin token is added: as tokenizer_config.json says, else as the post-processor does."""
    stated = load_json(folder / "tokenizer_config.json").get("add_bos_token")
    if isinstance(stated, bool):
        return stated
    return list(backend.encode("", add_special_tokens=True).ids)[:1] == [bos]
