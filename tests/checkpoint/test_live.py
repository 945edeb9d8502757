from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hf_case import hf_folder

from kitae.checkpoint.live import LiveSink, LiveSource
from kitae.checkpoint.model_folder import open_model
from kitae.checkpoint.stream import stream
from kitae.errors import WeightsError
from kitae.model.decoder import decoder_layouts
from kitae.parallel.layout import Box, ParameterLayout, Piece

ROWS = torch.arange(12.0).reshape(6, 2)
BIAS = torch.arange(3.0)


def piece(name: str, shape: tuple[int, ...], box: Box, local: tuple[int, ...]) -> Piece:
    return Piece(name, shape, shape, box, local)


LAYOUTS = [
    ParameterLayout(
        "fused",
        (
            piece("a", (6, 2), Box((2, 0), (3, 2)), (4, 2)),  # the fourth row is padding
            piece("b", (2, 2), Box.whole((2, 2)), (2, 2)),
        ),
    ),
    ParameterLayout("bias", (piece("c", (3,), Box.whole((3,)), (3,)),)),
]


def local() -> dict[str, torch.Tensor]:
    return {"fused": torch.full((6, 2), torch.nan), "bias": torch.full((3,), torch.nan, dtype=torch.bfloat16)}


def test_sink_cuts_concatenates_casts_and_pads() -> None:
    tensors = local()
    with LiveSink(tensors, LAYOUTS) as sink:
        sink.write("a", Box((0, 0), (4, 2)), ROWS[:4])
        sink.write("a", Box((4, 0), (2, 2)), ROWS[4:])
        sink.write("b", Box.whole((2, 2)), torch.full((2, 2), 9.0))
        sink.write("c", Box.whole((3,)), BIAS)
    assert tensors["fused"].tolist() == [[4, 5], [6, 7], [8, 9], [0, 0], [9, 9], [9, 9]]
    assert tensors["bias"].tolist() == [0, 1, 2]


def test_sink_names_what_was_not_filled() -> None:
    sink = LiveSink(local(), LAYOUTS)
    sink.write("a", Box((0, 0), (4, 2)), ROWS[:4])
    sink.write("b", Box.whole((2, 2)), torch.zeros(2, 2))
    with pytest.raises(WeightsError, match=r"2 tensors .* not filled: a \(2 values\), c \(3 values\)"):
        sink.close()


def test_sink_takes_every_element_once() -> None:
    sink = LiveSink(local(), LAYOUTS)
    sink.write("a", Box((0, 0), (4, 2)), ROWS[:4])
    with pytest.raises(WeightsError, match=r"tensor a \(6, 2\).*written twice"):
        sink.write("a", Box((3, 1), (1, 1)), ROWS[:1, :1])
    with pytest.raises(WeightsError, match=r"tensor a: .*shape \(7, 2\) does not fit the shape \(6, 2\)"):
        sink.write("a", Box.whole((7, 2)), torch.zeros(7, 2))
    with pytest.raises(WeightsError, match="tensor x has no place"):
        sink.write("x", Box.whole((1,)), torch.zeros(1))


def test_source_reads_boxes_of_what_lives_here() -> None:
    tensors = {"fused": torch.arange(12.0).reshape(6, 2), "bias": BIAS}
    source = LiveSource(tensors, LAYOUTS)
    assert {name: info.shape for name, info in source.tensors().items()} == {
        "a": (6, 2),
        "b": (2, 2),
        "c": (3,),
    }
    assert source.boxes("a") == [Box((2, 0), (3, 2))]
    assert source.read("a", Box((3, 1), (2, 1))).tolist() == [[3], [5]]
    assert source.read("b").tolist() == [[8, 9], [10, 11]]
    with pytest.raises(WeightsError, match="tensor a: 6 of the values asked for live on other ranks"):
        source.read("a")


def test_source_puts_the_parts_of_one_tensor_together() -> None:
    halves = [
        ParameterLayout(name, (piece("a", (6, 2), Box((start, 0), (3, 2)), (3, 2)),))
        for name, start in (("top", 0), ("bottom", 3))
    ]
    source = LiveSource({"top": ROWS[:3], "bottom": ROWS[3:]}, halves)
    assert torch.equal(source.read("a"), ROWS)
    assert torch.equal(source.read("a", Box((1, 0), (4, 1))), ROWS[1:5, :1])


@pytest.mark.parametrize("end", [LiveSink, LiveSource])
def test_model_and_layout_that_disagree(end: type[LiveSink] | type[LiveSource]) -> None:
    with pytest.raises(
        WeightsError, match=r"parameter bias of shape \(3,\) is in the layout but not in the model"
    ):
        end({"fused": torch.zeros(6, 2)}, LAYOUTS)
    with pytest.raises(WeightsError, match=r"parameter fused has shape \(5, 2\), its layout says \(6, 2\)"):
        end({"fused": torch.zeros(5, 2), "bias": BIAS}, LAYOUTS)


@pytest.mark.parametrize("tp_size", [2, 4])
def test_ranks_hold_each_element_and_give_it_back(tmp_path: Path, tp_size: int) -> None:
    """Fill the ranks (more than there are KV heads; vocabulary 99 padded), then gather their boxes."""
    model = open_model(hf_folder(tmp_path / "model"))
    gathered = {n: torch.full(i.shape, torch.nan) for n, i in model.source.tensors().items()}
    for rank in range(tp_size):
        layouts = decoder_layouts(model.decoder_config, model.tied)(tp_size, rank)
        tensors = {layout.name: torch.empty(layout.shape) for layout in layouts}
        with LiveSink(tensors, layouts) as sink:
            stream(model.source, sink)
        source = LiveSource(tensors, layouts)
        for name in source.tensors():
            for box in source.boxes(name):
                gathered[name][box.slices()] = source.read(name, box)
    for name, tensor in gathered.items():
        assert torch.equal(tensor, model.source.read(name)), name
