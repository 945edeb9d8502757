"""The tiny tokenizer, trained once a session, and folders of it with and without special tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_tokenizer import train_backend, write_tokenizer
from tokenizers import Tokenizer, processors

from kitae.data.tokenizer import TextTokenizer
from kitae.recipe.sources import DataConfig


@pytest.fixture(scope="session")
def tokenizer_json() -> str:
    return train_backend().to_str()


@pytest.fixture(scope="session")
def tokenizer_folder(tokenizer_json, tmp_path_factory) -> Path:
    """`<b>` is 0 and `<e>` is 1; its post-processor adds nothing."""
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"), tokenizer_json)


@pytest.fixture(scope="session")
def template_folder(tokenizer_json, tmp_path_factory) -> Path:
    """The same vocabulary; its post-processor puts `<b>` before a text, and nothing behind it."""
    backend = Tokenizer.from_str(tokenizer_json)
    backend.post_processor = processors.TemplateProcessing(single="<b> $A", special_tokens=[("<b>", 0)])
    return write_tokenizer(tmp_path_factory.mktemp("template"), backend.to_str())


@pytest.fixture(scope="session")
def tokenizer(tokenizer_folder) -> TextTokenizer:
    return TextTokenizer.load(tokenizer_folder)


@pytest.fixture
def write(tmp_path) -> Callable[[str, str | bytes], Path]:
    """Write a file below the test's folder."""

    def write_file(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    return write_file


@pytest.fixture
def make_config() -> Callable[..., DataConfig]:
    """A data section of the recipe with one training source."""

    def make(path: str, *, source: dict | None = None, **options: object) -> DataConfig:
        train = [{"path": path, **(source or {})}]
        return DataConfig.model_validate({"train": train, "sequence_length": 16, "workers": 0, **options})

    return make
