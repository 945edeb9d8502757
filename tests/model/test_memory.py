import pytest
import torch
from tiny_decoders import positions, random_ids, reference, same_in_kitae

from kitae.model.layouts import decoder_layouts
from kitae.model.memory import count_parameters, state_bytes


def nbytes(tensors):
    return sum(tensor.nbytes for tensor in tensors)


@pytest.mark.parametrize("case", ["llama-biases", "qwen3", "smollm2"])
def test_fp32_bytes_are_those_of_real_tensors(case):
    decoder = same_in_kitae(reference(case))
    ids = random_ids(1, 8)
    decoder.logits(decoder(ids, positions(ids))).sum().backward()
    optimizer = torch.optim.AdamW(decoder.parameters())
    optimizer.step()
    moments = [state[kind] for state in optimizer.state.values() for kind in ("exp_avg", "exp_avg_sq")]
    assert state_bytes(decoder.layouts, "fp32") == {
        "parameters": nbytes(decoder.parameters()),
        "gradients": nbytes(parameter.grad for parameter in decoder.parameters()),
        "optimizer": nbytes(moments),
    }


def test_bf16_keeps_fp32_masters_sums_and_moments():
    decoder = same_in_kitae(reference("qwen3"), torch.bfloat16)
    masters = [parameter.detach().float() for parameter in decoder.parameters()]
    sizes = state_bytes(decoder.layouts, "bf16")
    assert sizes["parameters"] == nbytes(decoder.parameters())
    assert sizes["master"] == sizes["gradients"] == nbytes(masters)
    assert sizes["optimizer"] == 2 * nbytes(masters)


def test_a_tied_head_counts_once_and_padding_counts():
    config = same_in_kitae(reference("llama2")).config
    one, tied = (count_parameters(decoder_layouts(config, which)(1, 0)) for which in (False, True))
    assert one - tied == 99 * 32
    padded = sum(count_parameters(decoder_layouts(config, True)(4, rank)) for rank in range(4))
    norms = 7 * 32
    assert padded == tied + 1 * 32 + 3 * norms
