"""Weights of any format, opened for computing forward, with the tokenizer that lies beside them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kitae.errors import DataError, RecipeError

if TYPE_CHECKING:
    import torch

    from kitae.checkpoint.model_folder import ModelFolder
    from kitae.checkpoint.opened import Opened
    from kitae.data.tokenizer import TextTokenizer
    from kitae.generate.network import Network
    from kitae.generate.weights import Keeping
    from kitae.launch.order import Launch
    from kitae.parallel.mesh import Mesh

TIMEOUT_S = 900.0
"""Seconds without any progress after which ranks are ended."""
Dtype = Literal["auto", "fp32", "bf16"]


@dataclass(frozen=True)
class Opening:
    """What to open and how; values of JSON, for ranks are given it too."""

    path: str
    config: str | None = None
    """A config.json, or its folder, where the weights have none."""
    order: Literal["trn1", "trn2"] | None = None
    """Of NxD ranks, where their values do not tell it."""
    tokenizer: str | None = None
    """Folder of the tokenizer, where it is not beside the weights."""
    dtype: Dtype = "auto"
    quantize: Literal["none", "int8"] = "none"
    backend: str = "auto"
    """What computes; one that compiles a program for each shape is only taken by its name."""

    def backend_name(self) -> str:
        """What computes, by name; no device is taken. Raises `RecipeError`."""
        from kitae.backend.table import aside_name, chosen

        return aside_name() if self.backend == "auto" else chosen(self.backend).name

    def weights(self) -> Opened:
        """What lies there, as far as headers tell."""
        from kitae.checkpoint.opened import open_weights

        config = Path(self.config) if self.config else None
        return open_weights(Path(self.path), config, order=self.order)


@dataclass(frozen=True)
class Words:
    """A tokenizer, and what it says of conversations."""

    tokenizer: TextTokenizer
    template: str | None
    """Its chat template."""
    special: Mapping[str, str]
    """Special tokens by the names that templates have for them."""
    place: str
    """Where it is, for messages."""


@dataclass(frozen=True)
class TextModel:
    """A decoder with its tokenizer."""

    network: Network
    words: Words
    eos_ids: frozenset[int]
    """What ends a text, by the model's files."""
    title: str
    """The format in words."""


def check_cut(opening: Opening, tp_size: int) -> None:
    """Raise before any process is started: what cannot be opened, is no decoder, or is not cut so."""
    from kitae.checkpoint.reading import reading
    from kitae.stages.topology import LARGEST_DEGREE, allowed_degrees

    with reading(opening.path):
        config = opening.weights().model().decoder_config
    allowed = allowed_degrees(config)
    if tp_size not in allowed:
        raise RecipeError(
            f"--tp {tp_size} does not fit this model of {config.num_heads} heads and {config.num_kv_heads} "
            f"KV heads; up to {LARGEST_DEGREE} it allows {', '.join(map(str, allowed))}"
        )


def text_launch(opening: Opening, tp_size: int, logs: Path, title: str, on_stop: str) -> Launch:
    """Processes that hold a model together; `on_stop` is what is said when they are asked to end."""
    from kitae.launch.order import Launch

    return Launch(
        world_size=tp_size,
        tp_size=tp_size,
        backend=opening.backend_name(),
        timeout_s=TIMEOUT_S,
        logs=logs,
        title=title,
        on_stop=on_stop,
    )


def open_text_model(opening: Opening, mesh: Mesh | None = None) -> TextModel:
    """Read the weights that this rank holds, and the tokenizer.

    WeightsError for what is no decoder or is broken, DataError for a tokenizer that is missing or broken.
    """
    from kitae.backend.table import select
    from kitae.checkpoint.reading import reading
    from kitae.generate.weights import Keeping

    backend = select(opening.backend_name())
    with reading(opening.path):
        opened = opening.weights()
        model = opened.model()
        words = _words(opening, opened)
        dtype = _dtype(opening.dtype, backend.default_precision)
        network = open_network(model, Keeping(dtype, backend.device, opening.quantize), mesh)
    eos_ids = _eos_ids(network.config, model.generation_config)
    return TextModel(network, words, eos_ids, opened.title)


def open_network(model: ModelFolder, keeping: Keeping, mesh: Mesh | None = None) -> Network:
    """A decoder, or a rank's part of one, with its weights; only those are read."""
    from kitae.generate.network import Network
    from kitae.generate.weights import read_weights
    from kitae.model.layouts import decoder_layouts
    from kitae.parallel.mesh import Mesh
    from kitae.parallel.region import region_of

    config, group = model.decoder_config, (mesh or Mesh()).tensor
    layouts = decoder_layouts(config, model.tied)(group.size, group.rank)
    weights = read_weights(model.source, layouts, keeping, group)
    region = region_of(group, False)
    return Network(config, weights, tied=model.tied, dtype=keeping.dtype, region=region)


def _dtype(wanted: Dtype, usual: Literal["fp32", "bf16"]) -> torch.dtype:
    import torch

    return {"fp32": torch.float32, "bf16": torch.bfloat16}[usual if wanted == "auto" else wanted]


def _eos_ids(config: Any, generation: Mapping[str, Any] | None) -> frozenset[int]:
    """Those of config.json, and those that only generation_config.json has, as chat models' do."""
    more = (generation or {}).get("eos_token_id")
    more = more if isinstance(more, list) else [more]
    return frozenset([*config.eos_token_ids, *(one for one in more if isinstance(one, int))])


def _words(opening: Opening, opened: Opened) -> Words:
    with tempfile.TemporaryDirectory(prefix="kitae-tokenizer-") as empty:
        return read_words(_tokenizer_folder(opening, opened, Path(empty)))


def read_words(folder: Path) -> Words:
    """The tokenizer of a folder. Raises `DataError`."""
    from kitae.data.tokenizer import TextTokenizer
    from kitae.stages.chat import chat_template, special_tokens

    return Words(TextTokenizer.load(folder), chat_template(folder), special_tokens(folder), str(folder))


def _tokenizer_folder(opening: Opening, opened: Opened, empty: Path) -> Path:
    if opening.tokenizer is not None:
        if not Path(opening.tokenizer).is_dir():
            raise DataError(f"--tokenizer: {opening.tokenizer} is no folder; name the one with its files")
        return Path(opening.tokenizer)
    if opened.tokenizer is None:
        raise DataError(
            f"{opened.path}: there is no tokenizer beside the weights; name its folder with --tokenizer"
        )
    return opened.tokenizer(empty)
