"""What a conversion can write: Hugging Face folders, kitae checkpoints, NxD rank files. One entry each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from kitae.catalog.hf_files import CHAT_TEMPLATE_FILES, TOKENIZER_FILES
from kitae.checkpoint.converted_store import write_store
from kitae.checkpoint.hf_sink import MAX_SHARD_BYTES, HfSink, plan_shards, true_config
from kitae.checkpoint.journal import Journal, go_on
from kitae.checkpoint.model_folder import ModelFolder
from kitae.checkpoint.nxd_format import NxdFormat, rank_file
from kitae.checkpoint.nxd_layout import nxd_layouts
from kitae.checkpoint.nxd_plan import nxd_bytes, rank_tensors
from kitae.checkpoint.nxd_sink import NxdSink
from kitae.checkpoint.opened import Opened, Optimizer
from kitae.checkpoint.pipe import Selection, TensorInfo, TensorSource
from kitae.checkpoint.replace import FolderInPlace
from kitae.checkpoint.wrapped import Cast
from kitae.model.architecture import architecture_of
from kitae.model.config import DecoderConfig
from kitae.parallel.layout import ParameterLayout

Target = Literal["hf", "kitae", "nxd"]
Infos = Mapping[str, TensorInfo]
_ROOM_FOR_SMALL_FILES = 1 << 20


@dataclass(frozen=True)
class Conversion:
    """From what to what, with everything decided."""

    opened: Opened
    model: ModelFolder
    target: Target
    dtype: torch.dtype | None
    """None leaves each tensor in its own."""
    format: NxdFormat | None = None
    """How NxD files are to be cut."""
    xser: bool = False
    optimizer: Optimizer | None = None
    """What goes along into a kitae checkpoint."""

    @property
    def due(self) -> TensorSource:
        """The tensors as they are to be written; a run goes on from masters where there are some."""
        masters = self.optimizer.masters if self.optimizer else None
        return Cast(Selection(masters or self.model.source, self.model.names), self.dtype)

    @property
    def moments(self) -> dict[str, TensorSource]:
        """The optimizer's state by kind, without what the model does not have."""
        held = self.optimizer.moments if self.optimizer else {}
        return {kind: Selection(source, self.model.names) for kind, source in held.items()}

    @property
    def step(self) -> int:
        """Optimizer updates that the result comes from."""
        return self.optimizer.step if self.optimizer else self.opened.step or 0

    @property
    def config(self) -> dict[str, Any]:
        """config.json of the result: the source's, with the class that transformers needs."""
        kind = architecture_of(self.model.model_config)
        return {"architectures": [kind.class_name(self.model.model_config)], **self.model.config}

    @property
    def generation_config(self) -> dict[str, Any]:
        """The source's, or what config.json says of it; nothing of an encoder."""
        if self.model.generation_config is not None:
            return dict(self.model.generation_config)
        if not isinstance(self.model.model_config, DecoderConfig):
            return {}
        names = ("bos_token_id", "eos_token_id", "pad_token_id")
        return {name: self.config[name] for name in names if self.config.get(name) is not None}

    def rank_table(self) -> Callable[[int, int], list[ParameterLayout]]:
        """What each rank's file holds; WeightsError when the format does not allow it."""
        assert self.format is not None
        return nxd_layouts(self.model.decoder_config, self.model.tied, self.format)


@dataclass(frozen=True)
class Result:
    """What a conversion writes."""

    source: TensorSource
    """The tensors that are due."""
    folder: Path
    tokenizer: Path | None
    """Another folder, with the tokenizer's files."""
    journal: Journal
    """What is in the folder already."""

    @property
    def making(self) -> FolderInPlace:
        """The folder for a sink."""
        return FolderInPlace(self.folder, self.journal.done())


@dataclass(frozen=True)
class Writer:
    """How one target is written."""

    needed_bytes: Callable[[Conversion], int]
    listing: Callable[[Conversion], Iterator[str]]
    """What will be there: a line for each tensor or file, for --dry-run."""
    write: Callable[[Conversion, Result], None]
    """Stream what is not there yet."""


def tensor_lines(infos: Infos, indent: str = "  ") -> Iterator[str]:
    """Name, shape, dtype and size of each tensor."""
    width = max(map(len, infos), default=0)
    for name, info in infos.items():
        shape = " x ".join(map(str, info.shape)) or "scalar"
        dtype = str(info.dtype).removeprefix("torch.")
        yield f"{indent}{name:<{width}}  {shape:>16}  {dtype}  {info.nbytes:,} bytes"


def tokenizer_files(folder: Path) -> list[Path]:
    """The files of a tokenizer in a folder."""
    return [folder / name for name in (*TOKENIZER_FILES, *CHAT_TEMPLATE_FILES) if (folder / name).is_file()]


def copy_tokenizer(source: Path | None, folder: Path) -> bool:
    """Copy the files of a tokenizer; whether there are any."""
    files = [] if source is None else tokenizer_files(source)
    for file in files:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, folder / file.name)
    return bool(files)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _bytes(infos: Infos) -> int:
    return sum(info.nbytes for info in infos.values()) + _ROOM_FOR_SMALL_FILES


def _list_hf(conversion: Conversion) -> Iterator[str]:
    infos = conversion.due.tensors()
    for file, names in plan_shards(infos, MAX_SHARD_BYTES).items():
        yield f"{file}, {sum(infos[name].nbytes for name in names):,} bytes"
        yield from tensor_lines({name: infos[name] for name in names})


def _write_hf(conversion: Conversion, result: Result) -> None:
    with HfSink(
        result.folder,
        result.source.tensors(),
        config=conversion.config,
        tokenizer_folder=result.tokenizer,
        generation_config=conversion.generation_config or None,
        making=result.making,
    ) as sink:
        go_on(result.source, sink, result.journal)


def _kitae_bytes(conversion: Conversion) -> int:
    sources = (conversion.due, *conversion.moments.values())
    return sum(_bytes(source.tensors()) for source in sources)


def _list_kitae(conversion: Conversion) -> Iterator[str]:
    for kind, source in {"weights": conversion.due, **conversion.moments}.items():
        yield f"checkpoints/step-{conversion.step:08d}, {kind}"
        yield from tensor_lines(source.tensors())


def _write_kitae(conversion: Conversion, result: Result) -> None:
    config = true_config(conversion.config, result.source.tensors())
    write_store(
        result.folder / "checkpoints",
        conversion.step,
        {"weights": result.source, **conversion.moments},
        result.journal,
        state=_state(conversion),
        config=config,
    )
    if copy_tokenizer(result.tokenizer, result.folder / "tokenizer"):
        ids = {name: config.get(name) for name in ("bos_token_id", "eos_token_id")}
        _write_json(result.folder / "tokenizer" / "config.json", ids)


def _state(conversion: Conversion) -> dict[str, Any]:
    """What a run needs to go on: how far it is, as far as the source knows, and the origin's own files."""
    known = dict(conversion.opened.state)
    counters = dict.fromkeys(("consumed_samples", "padded_tokens", "real_tokens"), 0)
    return {
        **counters,
        "best_heldout_loss": None,
        **known,
        "step": conversion.step,
        "dtype": str(conversion.dtype or conversion.model.dtype).removeprefix("torch."),
        "generation_config": conversion.generation_config,
    }


def _nxd_bytes(conversion: Conversion) -> int:
    assert conversion.format is not None
    infos = conversion.due.tensors()
    return nxd_bytes(infos, conversion.rank_table(), conversion.format) + _ROOM_FOR_SMALL_FILES


def _list_nxd(conversion: Conversion) -> Iterator[str]:
    assert conversion.format is not None
    size, infos = conversion.format.tp_size, conversion.due.tensors()
    for stage in range(conversion.format.pp_size):
        files = f"model/{rank_file(0, stage)}" + (f" to {rank_file(size - 1, stage)}" if size > 1 else "")
        held = rank_tensors(conversion.rank_table()(0, stage), infos)
        yield f"{files}, each {sum(info.nbytes for info in held.values()):,} bytes in"
        yield from tensor_lines(held)


def _write_nxd(conversion: Conversion, result: Result) -> None:
    assert conversion.format is not None
    infos = result.source.tensors()
    with NxdSink(
        result.folder,
        infos,
        conversion.rank_table(),
        conversion.format,
        xser=conversion.xser,
        config=true_config(conversion.config, infos),
        making=result.making,
    ) as sink:
        _write_json(sink.temporary / "generation_config.json", conversion.generation_config)
        copy_tokenizer(result.tokenizer, sink.temporary)
        go_on(result.source, sink, result.journal)


WRITERS: dict[Target, Writer] = {
    "hf": Writer(lambda one: _bytes(one.due.tensors()), _list_hf, _write_hf),
    "kitae": Writer(_kitae_bytes, _list_kitae, _write_kitae),
    "nxd": Writer(_nxd_bytes, _list_nxd, _write_nxd),
}
