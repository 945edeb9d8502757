"""A kitae checkpoint as a conversion writes it: alone in its store, in place, and gone on with.

The store is in a hidden folder until it is proven, so nothing in it has to appear as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kitae.checkpoint.convert_record import digest
from kitae.checkpoint.journal import Journal, go_on
from kitae.checkpoint.manifest import MANIFEST_NAME, Manifest
from kitae.checkpoint.native import NativeSink
from kitae.checkpoint.pipe import TensorSource
from kitae.checkpoint.run_index import RunIndex, Saved, step_name, write_index, write_pointer
from kitae.storage.folders import sweep

_RECIPE_HASH = "converted"
"""No recipe has this hash, so no run takes a converted checkpoint for one of its own."""


def write_store(
    store: Path,
    step: int,
    sources: Mapping[str, TensorSource],
    journal: Journal,
    *,
    state: Mapping[str, Any],
    config: Mapping[str, Any],
) -> None:
    """Write the tensors of `sources` (one for each kind) that are not there, and all that names them."""
    folder = store / step_name(step)
    folder.mkdir(parents=True, exist_ok=True)
    sweep(store)
    saved = Saved(step, 1, None)
    run = digest(journal.made)
    manifest = Manifest(run, saved.sequence, step, _RECIPE_HASH, saved.heldout_loss, state, config, {}, {})
    manifest.encode()  # a state that is not JSON is found before gigabytes are written
    for kind, source in sources.items():
        manifest = _write_kind(folder, kind, source, journal, manifest)
    (folder / MANIFEST_NAME).write_bytes(manifest.encode())
    write_index(store, RunIndex(run, (saved,)))
    write_pointer(store, step)


def _write_kind(
    folder: Path, kind: str, source: TensorSource, journal: Journal, manifest: Manifest
) -> Manifest:
    infos = source.tensors()
    with NativeSink(folder, infos, stem=kind) as sink:
        for name in filter(journal.done(kind).__contains__, infos):
            sink.keep(name)
        go_on(source, sink, journal, kind)
    return manifest.joined(kind, sink.stored, sink.files)
