"""Weights of any format, opened as one source of full tensors under their Hugging Face names."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from kitae.catalog.hf_files import CHAT_TEMPLATE_FILES, TOKENIZER_FILES
from kitae.checkpoint.detect import TITLES, Detected, Kind, detect
from kitae.checkpoint.gguf import GgufSource
from kitae.checkpoint.hf import COMPUTED, HfSource, TensorFile, read_json
from kitae.checkpoint.hf_bin import BinFile
from kitae.checkpoint.model_folder import ModelFolder, checked_model, decoder_config_of, model_config_of
from kitae.checkpoint.nxd import NxdSource
from kitae.checkpoint.nxd_folder import find_nxd
from kitae.checkpoint.nxd_format import NxdFormat, Order
from kitae.checkpoint.nxd_moments import MASTERS, MOMENTS
from kitae.checkpoint.nxd_optimizer import NxdOptimizer
from kitae.checkpoint.pipe import TensorInfo, TensorSource
from kitae.checkpoint.resume import find_checkpoint
from kitae.checkpoint.safetensors_file import SafetensorsFile
from kitae.errors import WeightsError
from kitae.parallel.layout import Box

Config = Mapping[str, Any]
TokenizerWriter = Callable[[Path], Path]
"""Gives the folder with the tokenizer's files; it may make them in the empty folder that it gets."""


@dataclass(frozen=True)
class Optimizer:
    """The state of an optimizer, in full tensors."""

    moments: Mapping[str, TensorSource]
    """By their kind."""
    step: int
    """Optimizer updates done."""
    masters: TensorSource | None = None
    """The weights in fp32, where the model's own are rounded."""
    check_replicas: Callable[[], None] = lambda: None
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Opened:
    """Weights on the disk, as far as headers tell; nothing was read yet."""

    path: Path
    kind: Kind
    title: str
    """The format in words."""
    source: TensorSource
    config: Config | None
    """What config.json holds, or would hold."""
    config_from: str = "config.json"
    generation_config: Config | None = None
    tokenizer: TokenizerWriter | None = None
    optimizer: Callable[[], Optimizer] | None = None
    """Opens what an optimizer has saved; WeightsError when it does not fit the weights."""
    step: int | None = None
    """Optimizer updates done, or what the name of the folder says of them."""
    state: Config = field(default_factory=dict)
    """The rest of what a run saved."""
    topology: NxdFormat | None = None
    xser: bool = False
    """Whether tensors lie in files of their own."""
    check_replicas: Callable[[], None] | None = None
    """Raises WeightsError when parts that several ranks hold differ."""
    files: Sequence[Path] = ()
    """All that the result follows from."""
    notes: Sequence[str] = ()

    def model(self) -> ModelFolder:
        """The tensors, checked against the configuration; WeightsError says what does not fit."""
        if self.config is None:
            raise WeightsError(
                f"{self.path}: {self.title} carries no config.json, and the shapes alone do not tell the "
                "heads; name the model's with --config FILE"
            )
        return checked_model(
            self.path,
            self.config,
            model_config_of(self.path, self.config),
            self.source,
            generation_config=self.generation_config,
            notes=self.notes,
        )


@dataclass(frozen=True)
class Hints:
    """What the files may not tell."""

    config: Config | None = None
    order: Order | None = None


def open_weights(
    path: Path, config_file: Path | None = None, *, like: Config | None = None, order: Order | None = None
) -> Opened:
    """Open what lies at `path`, with the configuration of `config_file` where it carries none.

    `like` is a configuration to fall back on, of weights that it is compared with; `order` is that of NxD
    files, where their values do not tell it.
    """
    found = detect(path)
    given = _given(config_file)
    opened = _OPENERS[found.kind](found, Hints(given[0] if given else like, order))
    return replace(_with_config(opened, given), notes=(*found.notes, *opened.notes))


def _given(file: Path | None) -> tuple[Config, Path] | None:
    """What --config names: a config.json, or the folder that it lies in."""
    if file is None:
        return None
    path = file / "config.json" if file.is_dir() else file
    if not path.is_file():
        raise WeightsError(f"--config: {path} does not exist; name the config.json of the model")
    return read_json(path), path


def _with_config(opened: Opened, given: tuple[Config, Path] | None) -> Opened:
    """The weights with the configuration that was given, which must not contradict their own."""
    if given is None:
        return opened
    config, path = given
    if opened.config is not None:
        _require_same(opened, config, path)
    tokenizer = None if opened.tokenizer else tokenizer_beside(path.parent)
    said = [f"tokenizer: from {path.parent}, where the config.json is"] if tokenizer else []
    return replace(
        opened,
        config=config,
        config_from=f"--config {path}",
        generation_config=opened.generation_config or _json_beside(path, "generation_config.json"),
        tokenizer=opened.tokenizer or tokenizer,
        notes=[*opened.notes, *said],
    )


def _require_same(opened: Opened, config: Config, path: Path) -> None:
    assert opened.config is not None
    own, given = vars(model_config_of(opened.path, opened.config)), vars(model_config_of(path, config))
    for name, value in own.items():
        if given.get(name) != value and name != "tie_word_embeddings":
            raise WeightsError(
                f"--config {path} says {name} {given.get(name)}, but {opened.path} has its own config, which "
                f"says {value}; leave --config out, or name the right file"
            )


def tokenizer_beside(*places: Path) -> TokenizerWriter | None:
    """The first of these folders that has files of a tokenizer."""
    for place in places:
        if any((place / name).is_file() for name in (*TOKENIZER_FILES, *CHAT_TEMPLATE_FILES)):
            return lambda _, found=place: found  # type: ignore[misc]
    return None


def _open_hf(found: Detected, hints: Hints) -> Opened:
    folder = found.path
    source = HfSource(folder)
    files = sorted({file.path for file in source.files})
    own = _json_beside(folder / "-", "config.json")
    return Opened(
        folder,
        found.kind,
        f"{TITLES[found.kind]}, {_files(len(files))}",
        source,
        own,
        generation_config=_json_beside(folder / "-", "generation_config.json"),
        tokenizer=tokenizer_beside(folder),
        files=[*files, *filter(Path.is_file, folder.glob("*.json"))],
        notes=source.notes,
    )


def _open_gguf(found: Detected, hints: Hints) -> Opened:
    source = GgufSource(found.path)
    return Opened(
        found.path,
        found.kind,
        f"{TITLES[found.kind]}, {source.quantisation}, dequantised to fp32",
        source,
        source.config(),
        config_from="its metadata",
        generation_config=source.generation_config(),
        tokenizer=partial(_write_gguf_tokenizer, source.metadata),
        files=[found.path],
    )


def _write_gguf_tokenizer(metadata: Config, folder: Path) -> Path:
    from kitae.checkpoint.gguf_tokenizer import write_tokenizer

    write_tokenizer(metadata, folder)
    return folder


class _StateFile:
    """One file of plain tensors as a source, without buffers that the model computes itself."""

    def __init__(self, file: TensorFile) -> None:
        self._file = file
        self._tensors = {name: info for name, info in file.tensors.items() if not COMPUTED.search(name)}

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor's shape and dtype."""
        return self._tensors

    def read(self, name: str, box: Box | None = None) -> Any:
        """The box of a tensor."""
        return self._file.read(name, box or Box.whole(self._tensors[name].shape))


def _open_state(found: Detected, hints: Hints) -> Opened:
    path = found.path
    reader: Callable[[Path], TensorFile] = SafetensorsFile if path.suffix == ".safetensors" else BinFile
    return Opened(
        path,
        found.kind,
        TITLES[found.kind],
        _StateFile(reader(path)),
        _json_beside(path, "config.json"),
        generation_config=_json_beside(path, "generation_config.json"),
        tokenizer=tokenizer_beside(path.parent),
        files=[path],
    )


def _open_kitae(found: Detected, hints: Hints) -> Opened:
    notes: list[str] = []
    checkpoint = find_checkpoint(found.path, report=notes.append)
    path, manifest = checkpoint.path, checkpoint.manifest
    moments = {kind: checkpoint.source(kind) for kind in manifest.tensors if kind in MOMENTS}
    origin = {
        **_origin_in_run(path.parent.parent),
        **{k: v for k, v in manifest.state.items() if v is not None},
    }
    return Opened(
        path,
        found.kind,
        f"{TITLES[found.kind]}, {_files(len(manifest.files))}",
        checkpoint.source("weights"),
        manifest.config,
        config_from="its manifest",
        generation_config=origin.get("generation_config"),
        tokenizer=tokenizer_beside(
            *(place / "tokenizer" for place in (path, path.parent, path.parent.parent))
        ),
        optimizer=partial(Optimizer, moments, checkpoint.step) if moments else None,
        step=checkpoint.step,
        state=manifest.state,
        files=[path / "manifest.json", *(path / name for name in manifest.files)],
        notes=notes,
    )


def _origin_in_run(run: Path) -> Config:
    """What a run knows of the model that it began from."""
    try:
        stages = json.loads((run / "run.json").read_text(encoding="utf-8"))["stages"]
        return dict(stages["import"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _open_nxd(found: Detected, hints: Hints) -> Opened:
    folder = find_nxd(found.path)
    places = (folder.folder, found.path, found.path.parent)
    beside = next((place for place in places if (place / "config.json").is_file()), None)
    config = read_json(beside / "config.json") if beside else hints.config
    described = None if config is None else decoder_config_of(found.path, config)
    source = NxdSource(found.path, described, order=hints.order)
    ranks_files = (*folder.model.values(), *folder.optimizer.values())
    tensors = {path: path.with_name(f"{path.name}.tensors") for path in ranks_files}
    xser = any(tensors[path].is_dir() for path in folder.model.values())
    ranks = f"{len(folder.model)} rank file{'s' * (len(folder.model) > 1)}{', xser' * xser}"
    return Opened(
        folder.folder,
        found.kind,
        f"{TITLES[found.kind]}, {ranks}",
        source,
        config if beside else None,
        config_from=f"{beside / 'config.json'}" if beside else "",
        generation_config=_json_beside(beside / "-", "generation_config.json") if beside else None,
        tokenizer=tokenizer_beside(*places),
        optimizer=partial(_nxd_optimizer, source) if folder.optimizer else None,
        step=source.step,
        topology=source.format,
        xser=xser,
        check_replicas=source.check_replicas,
        files=[path for path in (*ranks_files, *tensors.values()) if path.exists()],
        notes=source.notes,
    )


def _nxd_optimizer(source: NxdSource) -> Optimizer:
    found = NxdOptimizer(source)
    return Optimizer(
        moments={kind: found.sources[kind] for kind in MOMENTS},
        step=found.step,
        masters=found.sources.get(MASTERS),
        check_replicas=found.check_replicas,
        notes=found.notes,
    )


def _files(count: int) -> str:
    return f"{count} file{'s' * (count != 1)}"


def _json_beside(path: Path, name: str) -> Config | None:
    file = path.parent / name
    return read_json(file) if file.is_file() else None


_OPENERS: dict[Kind, Callable[[Detected, Hints], Opened]] = {
    "hf": _open_hf,
    "bin": _open_hf,
    "gguf": _open_gguf,
    "state": _open_state,
    "kitae": _open_kitae,
    "nxd": _open_nxd,
}
