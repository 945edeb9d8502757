"""Parameters that are fetched and sent as wholes, against those that are read in place."""

from __future__ import annotations

import torch

from kitae.checkpoint.fetched import FetchedSource, to_be_sent
from kitae.checkpoint.live import LiveSource
from kitae.model.config import DecoderConfig
from kitae.model.decoder import Decoder
from kitae.model.init import initialise
from kitae.parallel.layout import Box

CONFIG = {
    "model_type": "llama",
    "vocab_size": 13,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def both():
    decoder = Decoder(DecoderConfig.from_hf(CONFIG), tied=False)
    initialise(dict(decoder.named_parameters()), decoder.layouts, seed=0, std=1.0)
    tensors = {name: one.detach() for name, one in decoder.named_parameters()}
    return tensors, LiveSource(tensors, decoder.layouts), FetchedSource(tensors, decoder.layouts)


def test_boxes_and_values_are_the_same():
    _, live, fetched = both()
    assert fetched.tensors() == live.tensors()
    for name, info in live.tensors().items():
        assert fetched.boxes(name) == live.boxes(name)
        assert torch.equal(fetched.read(name), live.read(name))
        start = tuple(size // 2 for size in info.shape)
        box = Box(start, tuple(size - first for size, first in zip(info.shape, start, strict=True)))
        assert torch.equal(fetched.read(name, box), live.read(name, box))
        assert torch.equal(fetched.view(name, box), live.view(name, box))


def test_a_fused_parameter_is_fetched_once_and_again_when_it_has_changed(monkeypatch):
    tensors, _, fetched = both()
    calls = []
    usual = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: calls.append(1) or usual(self))
    parts = [f"model.layers.0.self_attn.{one}_proj.weight" for one in "qkv"]
    first = [fetched.view(name, Box.whole(fetched.tensors()[name].shape)).clone() for name in parts]
    assert len(calls) == 1
    tensors["layers.0.attention.qkv.weight"].add_(1)
    again = [fetched.view(name, Box.whole(fetched.tensors()[name].shape)) for name in parts]
    assert len(calls) == 2
    for old, new in zip(first, again, strict=True):
        torch.testing.assert_close(new, old + 1)


def test_what_is_filled_goes_where_others_see_it():
    """A master may be another name of a parameter."""
    parameter = torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
    with to_be_sent({"one": parameter.detach()}) as held:
        assert (held["one"].shape, held["one"].dtype) == ((3,), torch.bfloat16)
        held["one"].copy_(torch.arange(3))
        assert not parameter.any()
    assert parameter.tolist() == [0, 1, 2]
