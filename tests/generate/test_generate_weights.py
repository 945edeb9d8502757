import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_decoders import random_ids, reference, same_in_kitae

from kitae.backend.group import ALONE
from kitae.checkpoint.live import LiveSource
from kitae.checkpoint.pipe import TensorInfo
from kitae.generate import weights as room
from kitae.generate.loop import Wish, continue_prompts
from kitae.generate.matrices import PACKED_TOKENS, ByColumns, ByRows, Int8
from kitae.generate.network import Network
from kitae.generate.weights import Keeping, live_weights, quantised, read_weights
from kitae.parallel.cuts import Place, column
from kitae.parallel.layout import ParameterLayout

CASES = ["llama3.1", "llama-biases", "qwen3-window", "smollm2"]


def source_of(decoder):
    return LiveSource(dict(decoder.named_parameters()), decoder.layouts)


def kept(decoder, **options):
    return read_weights(source_of(decoder), decoder.layouts, Keeping(**options), ALONE)


@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(1, 5),
    columns=st.integers(1, 40),
    seed=st.integers(0, 999),
    power=st.integers(-20, 20),
)
def test_rounding_to_int8_is_off_by_half_a_step_at_most(rows, columns, seed, power):
    """Symmetric, a scale for each row that bf16 holds, and nothing clipped."""
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * 2.0**power
    values, scales = quantised(weight.clone())
    assert values.dtype == torch.int8
    assert scales.dtype == torch.bfloat16
    assert values.abs().max() <= 127
    assert ((values * scales.float()[:, None] - weight).abs() <= 0.5001 * scales.float()[:, None]).all()
    largest = values.abs().amax(1).float()
    assert ((largest >= 126) | (weight.abs().amax(1) == 0)).all()


def test_a_row_of_zeros_stays_zero():
    values, scales = quantised(torch.zeros(2, 16))
    assert not values.any()
    assert (scales == 1).all()


@pytest.mark.parametrize("tokens", [1, 3, PACKED_TOKENS, PACKED_TOKENS + 1])
@pytest.mark.parametrize("inputs", [32, 48, 5, 40])
def test_int8_products_are_those_of_the_numbers_it_stands_for(tokens, inputs):
    """Whatever kernel is chosen: 5 and 40 inputs make the packed one read past the end."""
    generator = torch.Generator().manual_seed(1)
    matrix = Int8(*quantised(torch.randn(99, inputs, generator=generator)))
    x = torch.randn(tokens, inputs, generator=generator)
    exact = x.bfloat16().double() @ (matrix.values.double() * matrix.scales.double()[:, None]).t()
    found = matrix(x)
    assert found.dtype == torch.float32
    assert (found - exact).abs().max() <= 0.01 * exact.abs().max()


def test_all_ways_to_keep_a_matrix_give_the_same_rows():
    weight = torch.randn(20, 32, generator=torch.Generator().manual_seed(2))
    ids = torch.tensor([3, 19, 3])
    int8 = Int8(*quantised(weight.clone()))
    for matrix in (ByRows(weight), ByColumns(weight.t().contiguous())):
        torch.testing.assert_close(matrix.rows(ids, torch.float32), weight[ids], rtol=0, atol=0)
        assert matrix.nbytes == 20 * 32 * 4
    torch.testing.assert_close(int8.rows(ids, torch.float32), weight[ids], rtol=0, atol=0.02)
    assert int8.nbytes == 20 * 32 + 20 * 2


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
def test_what_is_read_in_blocks_is_what_is_there(case, block_bytes, monkeypatch):
    monkeypatch.setattr(room, "BLOCK_BYTES", block_bytes)
    decoder = same_in_kitae(reference(case))
    parameters = dict(decoder.named_parameters())
    found = kept(decoder)
    assert found.matrices.keys() | found.vectors.keys() == parameters.keys()
    for name, matrix in found.matrices.items():
        assert torch.equal(matrix.weight.t(), parameters[name])
    for name, vector in found.vectors.items():
        assert torch.equal(vector, parameters[name])
    int8 = kept(decoder, quantize="int8")
    for name, matrix in int8.matrices.items():
        values, scales = quantised(parameters[name].detach().clone())
        assert torch.equal(matrix.values, values)
        assert torch.equal(matrix.scales, scales)
    bf16 = kept(decoder, dtype=torch.bfloat16)
    assert bf16.matrices["embed.weight"].weight.dtype == torch.bfloat16


@pytest.mark.parametrize("case", CASES)
def test_int8_logits_are_near_those_in_fp32(case):
    decoder = same_in_kitae(reference(case))
    prompt = random_ids(20).tolist()

    def logits_of(weights):
        network = Network(decoder.config, weights, tied=decoder.tied, dtype=torch.float32)
        slots, pads = torch.arange(20), torch.zeros(1, dtype=torch.long)
        with torch.inference_mode():
            step = network.step(slots, pads, 24)
            return network.logits(network.hidden(torch.tensor([prompt]), step, network.cache(1, 24)))

    exact = logits_of(live_weights(dict(decoder.named_parameters())))
    rounded = logits_of(kept(decoder, quantize="int8"))
    assert exact.dtype == rounded.dtype == torch.float32
    assert (rounded - exact).std() < 0.05 * exact.std()


class Huge:
    """A source of one matrix of 64 MiB, which counts what is alive of it."""

    def __init__(self, shape):
        self.shape = shape
        self.most = 0

    def tensors(self):
        return {name: TensorInfo(self.shape, torch.float32) for name in ("w",)}

    def read(self, name, box=None):
        self.most = max(self.most, box.shape[0] * box.shape[1] * 4)
        return torch.ones(box.shape)


def test_a_matrix_is_never_whole_in_fp32_while_it_is_quantised():
    source = Huge((4096, 4096))
    layout = ParameterLayout("w", (column("w", source.shape, Place(1, 0)),))
    weights = read_weights(source, [layout], Keeping(quantize="int8"), ALONE)
    assert source.most <= room.BLOCK_BYTES
    assert weights.nbytes == 4096 * 4096 + 4096 * 2


def test_live_weights_are_the_models_own_memory():
    decoder = same_in_kitae(reference("smollm2"))
    weights = live_weights(dict(decoder.named_parameters()))
    assert weights.matrices["embed.weight"].weight.data_ptr() == decoder.embed.weight.data_ptr()
    network = Network(decoder.config, weights, tied=True, dtype=torch.float32)
    assert len(continue_prompts(network, [[1, 2]], Wish(3))[0].ids) == 3
