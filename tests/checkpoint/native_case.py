"""What the tests of kitae's own checkpoints share."""

import json
from itertools import pairwise
from pathlib import Path

import torch

from kitae.checkpoint.manifest import MANIFEST_NAME, Manifest
from kitae.checkpoint.native import NativeSink
from kitae.checkpoint.pipe import TensorInfo
from kitae.checkpoint.store import CheckpointStore
from kitae.parallel.layout import Box


class DictSource:
    """Tensors in memory as a TensorSource."""

    def __init__(self, tensors):
        self.held = tensors

    def tensors(self):
        return {name: TensorInfo(tuple(tensor.shape), tensor.dtype) for name, tensor in self.held.items()}

    def read(self, name, box=None):
        return self.held[name] if box is None else self.held[name][box.slices()]


def bits(tensor):
    """A tensor's bytes, so that NaN and -0.0 can be compared."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def cuts(size, parts):
    """`parts` neighbouring ranges that make up 0..size, as (start, length); uneven when they must be."""
    edges = [size * part // parts for part in range(parts + 1)]
    return [(start, stop - start) for start, stop in pairwise(edges)]


def grid(shape, rows, columns):
    """The boxes of a matrix cut into rows x columns."""
    return [Box((r, c), (n, m)) for r, n in cuts(shape[0], rows) for c, m in cuts(shape[1], columns)]


def write_checkpoint(folder, tensors, boxes=None, kind="weights", **options):
    """A step folder with one kind, written by one sink."""
    folder.mkdir(parents=True, exist_ok=True)
    source = DictSource(tensors)
    with NativeSink(folder, source.tensors(), boxes, stem=kind, **options) as sink:
        for name, info in source.tensors().items():
            for box in (boxes or {}).get(name, [Box.whole(info.shape)]):
                sink.write(name, box, source.read(name, box))
    manifest = Manifest("run", 1, 1, "recipe", None, {"step": 1}, {"model_type": "llama"}, {}, {})
    manifest = manifest.joined(kind, sink.stored, sink.files)
    (folder / MANIFEST_NAME).write_bytes(manifest.encode())
    return manifest


def save(store, step, *, value=None, heldout_loss=None):
    """Save a small step of which every element tells the step."""
    filled = torch.full((4, 8), float(step if value is None else value))
    sources = {"weights": DictSource({"w": filled}), "exp_avg": DictSource({"w": filled + 0.5})}
    return store.save(
        step, sources, state={"step": step}, config={"a": 1}, recipe_hash="r", heldout_loss=heldout_loss
    )


def store_at(folder, **options):
    """A store that keeps its reports in `.said`."""
    said = []
    store = CheckpointStore(Path(folder), **{"keep": 3, "report": said.append, **options})
    store.said = said
    return store


def names(folder):
    """The step folders that are there, by number."""
    return sorted(int(path.name.removeprefix("step-")) for path in Path(folder).glob("step-*"))


def edit_manifest(folder, change):
    """Apply `change` to the manifest's JSON without mending its digest."""
    path = folder / MANIFEST_NAME
    body = json.loads(path.read_bytes())
    change(body)
    path.write_text(json.dumps(body))
