"""Text on torch-xla, with the CPU as its device: the same ids, and no new graph while a text grows."""

from __future__ import annotations

import pytest
import torch
from tiny_decoders import random_ids, reference, same_in_kitae

torch_xla = pytest.importorskip("torch_xla")
from torch_xla.debug import metrics  # noqa: E402

from kitae.backend.group import ALONE  # noqa: E402
from kitae.checkpoint.live import LiveSource  # noqa: E402
from kitae.generate.loop import Wish, continue_prompts  # noqa: E402
from kitae.generate.network import Network  # noqa: E402
from kitae.generate.weights import Keeping, read_weights  # noqa: E402

pytestmark = pytest.mark.xla
PROMPTS = [random_ids(count, seed=count).tolist() for count in (3, 9)]


def network_of(decoder, device, quantize="none"):
    source = LiveSource(dict(decoder.named_parameters()), decoder.layouts)
    weights = read_weights(source, decoder.layouts, Keeping(device=device, quantize=quantize), ALONE)
    return Network(decoder.config, weights, tied=decoder.tied, dtype=torch.float32)


def compilations() -> int:
    data = metrics.metric_data("CompileTime")
    return 0 if data is None else data[0]


def test_ids_are_those_of_the_cpu_and_a_second_text_needs_no_new_graph():
    """T-row of cases.md 14: shapes are those of a few static lengths, and places are tensors."""
    decoder = same_in_kitae(reference("qwen3-window"))
    wish = Wish(8, chunk=8)
    network, plain = (network_of(decoder, one) for one in (torch_xla.device(), torch.device("cpu")))
    found = continue_prompts(network, PROMPTS, wish)
    assert [one.ids for one in found] == [one.ids for one in continue_prompts(plain, PROMPTS, wish)]
    before = compilations()
    others = [random_ids(count, seed=7).tolist() for count in (2, 11)]
    found = continue_prompts(network, others, wish)
    assert compilations() == before > 0
    assert [one.ids for one in found] == [one.ids for one in continue_prompts(plain, others, wish)]


def test_int8_ids_are_those_of_the_cpu():
    decoder = same_in_kitae(reference("llama3"))
    found = [
        continue_prompts(network_of(decoder, one, "int8"), PROMPTS[:1], Wish(3))
        for one in (torch_xla.device(), torch.device("cpu"))
    ]
    assert found[0][0].ids == found[1][0].ids
