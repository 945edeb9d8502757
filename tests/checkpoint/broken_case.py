"""One tiny model in every format that is converted from, and ways to break it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from convert_case import HF, quick
from hf_case import all_tensors, as_bin, edit_json, rewrite
from nxd_case import Cut, change, fixture_weights, rank_name, write
from safetensors.torch import save_file

from kitae.checkpoint.torch_pickle import pickled_references
from kitae.checkpoint.torch_writer import TorchFile

DOWN = "model.layers.1.mlp.down_proj.weight"
"""A tensor that full files and ranks' files have under one name."""
EXTRA = "model.layers.7.extra"
RANK = f"model/{rank_name(2)}"
Harm = Callable[[Path], object]


def make_sources(folder: Path) -> dict[str, Path]:
    """The fixture's Llama: Hugging Face in one file and in three, safetensors and .bin, kitae, NxD twice."""
    hf = _folder(folder / "safetensors")
    rewrite(hf, fixture_weights())
    shards = _folder(folder / "sharded safetensors")
    for number in range(3):
        save_file(_third(number), shards / _shard(number), {"format": "pt"})
    _write_index(shards / "model.safetensors.index.json", _shard)
    bin_one, bin_many = (
        as_bin(shutil.copytree(hf, folder / name), shards=n) for name, n in (("bin", 1), ("sharded bin", 3))
    )
    nxd = write(_folder(folder / "nxd"), Cut(), fixture_weights())
    xser = quick(hf, folder / "xser", to="nxd", tp=4, xser=True)
    kitae = quick(hf, folder / "kitae", to="kitae")
    found = (hf, shards, bin_one, bin_many, kitae, nxd, xser)
    return {path.name: path for path in found}


def values(name: str, tensor: torch.Tensor | None) -> Harm:
    """Put other values into every file that has the tensor, or take it out."""
    return lambda folder: _HARMS[folder.name](folder, name, tensor)


def remove(pattern: str) -> Harm:
    """Remove the first file of a pattern."""
    return lambda folder: _first(folder, pattern).unlink()


def cut(pattern: str, missing: int = 100) -> Harm:
    """Cut bytes off the end of a file."""

    def harm(folder: Path) -> None:
        path = _first(folder, pattern)
        os.truncate(path, path.stat().st_size - missing)

    return harm


def lie(index: str) -> Harm:
    """Let an index name the wrong file for a tensor."""

    def harm(folder: Path) -> None:
        weight_map = json.loads((folder / index).read_text())["weight_map"]
        other = next(file for file in weight_map.values() if file != weight_map[DOWN])
        edit_json(folder / index, weight_map={**weight_map, DOWN: other})

    return harm


def edit_manifest(folder: Path) -> None:
    """Let kitae's manifest say another shape."""
    path = _first(folder, "checkpoints/*/manifest.json")
    path.write_text(path.read_text().replace("48", "49", 1))


def call_tied(folder: Path) -> None:
    """Let the flag say that the head is the embedding, which it is not."""
    edit_json(folder / "config.json", tie_word_embeddings=True)


def _folder(path: Path) -> Path:
    path.mkdir()
    shutil.copy(HF / "config.json", path)
    return path


def _shard(number: int) -> str:
    return f"model-{number + 1:05d}-of-00003.safetensors"


def _third(number: int) -> dict[str, torch.Tensor]:
    return {name: t for i, (name, t) in enumerate(fixture_weights().items()) if i % 3 == number}


def _write_index(path: Path, shard: Callable[[int], str]) -> None:
    weight_map = {name: shard(i % 3) for i, name in enumerate(fixture_weights())}
    path.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def _first(folder: Path, pattern: str) -> Path:
    return sorted(folder.glob(pattern))[0]


def _in_safetensors(folder: Path, name: str, tensor: torch.Tensor | None) -> None:
    tensors = all_tensors(folder)
    rewrite(folder, _with(tensors, name, tensor))


def _in_shards(folder: Path, name: str, tensor: torch.Tensor | None) -> None:
    number = next((n for n in range(3) if name in _third(n)), 1)
    save_file(_with(_third(number), name, tensor), folder / _shard(number), {"format": "pt"})


def _in_bin(folder: Path, name: str, tensor: torch.Tensor | None) -> None:
    paths = sorted(folder.glob("*.bin"))
    path = next((path for path in paths if name in torch.load(path)), paths[0])
    torch.save(_with(torch.load(path), name, tensor), path)


def _in_rank(folder: Path, name: str, tensor: torch.Tensor | None) -> None:
    change(folder / RANK, **{name: tensor})


def _in_xser(folder: Path, name: str, tensor: torch.Tensor | None) -> None:
    plain = torch.load(write(folder.parent / "plain", Cut(), fixture_weights()) / RANK)
    names = list(_with(plain, name, tensor))
    (folder / RANK).unlink()
    TorchFile(folder / RANK, pickled_references(names), [])
    if tensor is not None:
        torch.save(tensor, folder / f"{RANK}.tensors/tensor_{names.index(name)}.pt")


def _in_kitae(folder: Path, name: str, tensor: torch.Tensor | None) -> None:
    """What a conversion without proof makes of such values."""
    hf = _folder(folder.parent / "before")
    rewrite(hf, _with(fixture_weights(), name, tensor))
    shutil.rmtree(folder)
    quick(hf, folder, to="kitae", proof="none")


def _with(
    tensors: dict[str, torch.Tensor], name: str, tensor: torch.Tensor | None
) -> dict[str, torch.Tensor]:
    # In its place, for the numbers of references count tensors.
    return {n: t for n, t in {**tensors, name: tensor}.items() if t is not None}


_HARMS: dict[str, Callable[[Path, str, torch.Tensor | None], None]] = {
    "safetensors": _in_safetensors,
    "sharded safetensors": _in_shards,
    "bin": _in_bin,
    "sharded bin": _in_bin,
    "kitae": _in_kitae,
    "nxd": _in_rank,
    "xser": _in_xser,
}
