"""Any topology reads any checkpoint: saved by some ranks, read by others, the same bits."""

from math import prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from topology_case import (
    CONFIG,
    KINDS,
    Topology,
    assert_same_state,
    filled,
    full_state,
    local_state,
    sources_of,
)

from kitae.backend.group import Group
from kitae.checkpoint.live import LiveSink, LiveSource
from kitae.checkpoint.manifest import MANIFEST_NAME, Manifest, read_manifest
from kitae.checkpoint.model_folder import fill_model
from kitae.checkpoint.native import NativeSource
from kitae.checkpoint.owners import divide
from kitae.checkpoint.parts import announce, announced, collect, joined, task_of, write_part
from kitae.checkpoint.stream import fill
from kitae.errors import WeightsError
from kitae.model.config import DecoderConfig
from kitae.model.decoder import Decoder

EMPTY = Manifest("run", 1, 1, "recipe", None, {}, {}, {}, {})


def write(folder, topology, full):
    """What all ranks of a topology write into one folder, and its manifest."""
    division = divide(topology.world())
    for rank in range(topology.size):
        sources = sources_of(topology.layouts(rank), local_state(topology.layouts(rank), full))
        task = task_of(sources, Group(tuple(range(topology.size)), rank), division)
        announce(folder, rank, write_part(folder, sources, task))
    parts = collect(folder, range(topology.size))
    (folder / MANIFEST_NAME).write_bytes(joined(EMPTY, parts, division.names).encode())


def check_read(folder, topology, full):
    manifest = read_manifest(folder)
    for rank in range(topology.size):
        layouts = topology.layouts(rank)
        found = filled(layouts, lambda kind: NativeSource(folder, kind, manifest))
        assert_same_state(found, local_state(layouts, full))


@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_any_topology_reads_any(tmp_path_factory, data):
    """T40: tp 1 to 8, dp 1 to 4, with and without ZeRO-1: padding, replicas and empty shares included."""
    sizes = {"tp": st.sampled_from([1, 2, 4, 8]), "dp": st.integers(1, 4), "zero": st.booleans()}
    tied = data.draw(st.booleans())
    written, read = (data.draw(st.builds(Topology, tied=st.just(tied), **sizes)) for _ in range(2))
    folder, full = tmp_path_factory.mktemp("saved"), full_state(tied)
    write(folder, written, full)
    check_read(folder, read, full)


@pytest.mark.parametrize("written", [Topology(), Topology(2, 2, zero=True)], ids=["one", "many"])
def test_a_checkpoint_says_the_same_whoever_wrote_it(tmp_path, written):
    """Names, order, shapes and dtypes are those of the model; and nothing else is in the folder."""
    full = full_state()
    write(tmp_path, written, full)
    manifest = read_manifest(tmp_path)
    for kind in KINDS:
        infos = NativeSource(tmp_path, kind, manifest).tensors()
        assert list(infos) == list(full[kind])
        assert {info.dtype for info in infos.values()} == {torch.float32}
    marks = [f"-r{rank:05d}" for rank in range(4)] if written.size > 1 else [""]
    names = {f"{kind}{mark}-f32-00001.safetensors" for kind in KINDS for mark in marks}
    assert {path.name for path in tmp_path.iterdir()} == {MANIFEST_NAME, *names}


class Counting(NativeSource):
    """Counts the elements asked for."""

    count = 0

    def read(self, name, box=None):
        self.count += prod(box.shape)
        return super().read(name, box)


def test_a_rank_reads_no_more_than_it_holds(tmp_path):
    full = full_state()
    write(tmp_path, Topology(2), full)
    total = sum(tensor.numel() for tensor in full["weights"].values())
    for rank in range(8):
        layouts = Topology(4, 2, zero=True).layouts(rank)
        source = Counting(tmp_path)
        tensors = {one.name: torch.empty(one.shape) for one in layouts}
        with LiveSink(tensors, layouts) as sink:
            fill(source, sink)
        assert 0 < source.count < total / 5


def test_a_rank_with_an_empty_share():
    """Five ranks share four rows of one tensor and one of another: some have nothing at all."""
    topology, full = Topology(1, 64, zero=True), full_state()
    layouts = topology.layouts(63)
    local = local_state(layouts, full)
    assert [tuple(tensor.shape) for tensor in local["weights"].values() if len(tensor)] == []
    sources = sources_of(layouts, local)
    assert sources["weights"].tensors() == {}
    assert divide(topology.world()).boxes[63] == {}
    found = filled(
        layouts,
        lambda kind: LiveSource(local_state(Topology().layouts(0), full)[kind], Topology().layouts(0)),
    )
    assert_same_state(found, local)


def test_a_part_is_announced_once_it_is_complete(tmp_path):
    topology, full = Topology(2), full_state()
    division = divide(topology.world())
    sources = sources_of(topology.layouts(1), local_state(topology.layouts(1), full))
    part = write_part(tmp_path, sources, task_of(sources, Group((0, 1), 1), division))
    assert not announced(tmp_path, [1])
    announce(tmp_path, 1, part)
    assert announced(tmp_path, [1])
    assert not announced(tmp_path, [0, 1])
    assert collect(tmp_path, [1]) == [part]
    assert not announced(tmp_path, [1])


def test_parts_that_make_no_whole_are_not_joined(tmp_path):
    topology, full = Topology(2), full_state()
    division = divide(topology.world())
    sources = sources_of(topology.layouts(1), local_state(topology.layouts(1), full))
    part = write_part(tmp_path, sources, task_of(sources, Group((0, 1), 1), division))
    with pytest.raises(WeightsError, match=r"not written in full: model.embed_tokens.weight"):
        joined(EMPTY, [part], division.names)


def decoder_config():
    return DecoderConfig.from_hf(CONFIG)


def test_filling_names_what_is_wrong():
    """A source that lacks a tensor, has it in another shape, or has one too many."""
    layouts, full = Topology().layouts(0), full_state()["weights"]
    local = local_state(layouts, {"weights": full})["weights"]
    source = LiveSource(local, layouts)
    decoder = Decoder(decoder_config(), tied=True)
    fill_model(decoder, source)  # an own head is no part of it, and may be there
    assert torch.equal(decoder.norm.weight.view(torch.int32), full["model.norm.weight"].view(torch.int32))
    without = [one for one in layouts if one.name != "norm.weight"]
    with pytest.raises(WeightsError, match=r"1 of 29 tensors are missing: model.norm.weight"):
        fill_model(Decoder(decoder_config(), tied=False), LiveSource(local, without))
    smaller = Decoder(DecoderConfig.from_hf({**CONFIG, "num_hidden_layers": 1}), tied=False)
    with pytest.raises(WeightsError, match=r"13 tensors are not part of the model: model.layers.1"):
        fill_model(smaller, source)
    wider = Decoder(DecoderConfig.from_hf({**CONFIG, "vocab_size": 100}), tied=False)
    with pytest.raises(
        WeightsError, match=r"embed_tokens.weight has shape \(99, 16\) where \(100, 16\) is due"
    ):
        fill_model(wider, source)
